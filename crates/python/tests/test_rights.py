"""Restricted windows and their keys."""

import memonet
import numpy as np
import pytest


def test_rights(run):
    def body(job):
        me, n = job.pe, job.npes

        def right(home, holder):
            return {(0, 1): "read+write", (2, 1): "none"}.get((home, holder), "read")

        w = job.restricted((2, 4), "float64", right=right)
        assert w.shape == (2, 4) and not w.local.any()
        w.local[:] = me
        job.barrier()
        try:
            w.put(0, (1, 0), np.full(4, 10.0 + me))
            assert me < 2
        except memonet.AccessDenied:
            assert me == 2
        try:
            assert w.at(2)[0, 1] == 2
            assert me != 1
        except PermissionError:
            assert me == 1
        job.barrier()
        assert me or w.local[1, 0] in (10, 11)
        job.barrier()

    run(3, body)


def test_keys(run):
    def body(job):
        me = job.pe
        for dtype in ("int64", "complex128"):
            secret = job.restricted(8, dtype, right=lambda home, holder: "read+write")
            secret.local[3] = 42 + me
            keys = job.world.all_gather_object(secret.key())
            job.barrier()
            part = job.attach(keys[0], dtype, shape=(4, 2))
            assert part.shape == (4, 2) and part.at(0)[1, 1] == 42
            job.barrier()
            if me == 0:
                secret.revoke(wait=True, timeout=60.0)
            job.barrier()
            for use in (lambda: job.attach(keys[0], dtype), lambda: part.get(0, 0)):
                try:
                    use()
                    raise AssertionError("the right was taken back")
                except memonet.AccessDenied as denied:
                    assert "revoked" in str(denied), denied
            assert secret.get(me, 3) == 42 + me, "a home keeps its part"
            if me == 0:
                secret.local[3] = 7
            fresh = job.world.broadcast_object(secret.key() if me == 0 else None)
            job.barrier()
            assert job.attach(fresh, dtype).get(0, 3) == 7
            job.barrier()

    run(2, body)


def test_mistakes():
    def body(job):
        with pytest.raises(ValueError, match="no right"):
            job.restricted(1, right=lambda home, holder: "all")
        with pytest.raises(ZeroDivisionError):
            job.restricted(1, right=lambda home, holder: 1 // 0)
        with pytest.raises(memonet.Error, match="restricted"):
            job.window(1).key()
        with pytest.raises(memonet.Error, match="restricted"):
            job.window(1).revoke()
        for key in (40, 2**40, "text", None):
            with pytest.raises(TypeError, match="bytes-like"):
                job.attach(key)
        with pytest.raises(TypeError, match="no key"):
            job.attach(b"short")
        with pytest.raises(memonet.AccessDenied):
            job.attach(bytes(40))
        w = job.restricted(4, "int32", right=lambda home, holder: "none")
        with pytest.raises(ValueError, match="4 elements"):
            job.attach(w.key(), "int32", shape=5)
        with pytest.raises(memonet.Error):
            job.world.all_reduce_into(w, w)
        for dtype in ("V3", "V32"):
            with pytest.raises(memonet.Mismatch, match="16 bytes"):
                job.attach(w.key(), dtype)
        assert job.attach(w.key(), "c8").size == 2

    memonet.threads(1, body)
