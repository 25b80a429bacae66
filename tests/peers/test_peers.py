import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import peers

HERE = Path(__file__).resolve().parent
# A command whose child goes on.
LONG = 'sleep 600 & echo $! > "$1"; wait'


def pid_in(file):
    while not (file.exists() and file.read_text().strip()):
        time.sleep(0.01)
    return int(file.read_text())


def has_ended(pid):
    """Waits until it has; a process that nobody waited for yet has, too."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


class Ended(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = Path(self.folder.name) / "pid"

    def test_status_output_and_errors(self):
        self.assertEqual(peers.ended(["sh", "-c", "echo a; echo b >&2; exit 3"], None, 60), (3, "a\n", "b\n"))

    def test_nothing_is_left_after_the_time(self):
        with self.assertRaisesRegex(OSError, "not done after 0.5 s"):
            peers.ended(["sh", "-c", LONG, "sh", str(self.file)], None, 0.5)
        self.assertTrue(has_ended(pid_in(self.file)))

    def test_nothing_is_left_after_a_signal(self):
        code = f"import peers; peers.end_at_signals(); peers.ended(['sh', '-c', {LONG!r}, 'sh', {str(self.file)!r}], None, 600)"
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(HERE)})
        child = pid_in(self.file)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        self.assertTrue(has_ended(child))

    def test_no_build_is_left_after_a_signal(self):
        code = f"import peers; peers.end_at_signals(); peers.build('sh', '-c', {LONG!r}, 'sh', {str(self.file)!r})"
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(HERE)})
        child = pid_in(self.file)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        self.assertTrue(has_ended(child))

    def test_a_build_that_fails(self):
        with self.assertRaises(subprocess.CalledProcessError) as failed:
            peers.build("sh", "-c", "echo why >&2; exit 3")
        self.assertEqual((failed.exception.returncode, failed.exception.stderr), (3, "why\n"))
        peers.build("true")

    def test_no_interference_is_left_after_a_signal(self):
        code = f"import peers, time; peers.end_at_signals()\nwith peers.Busy(True) as _: open({str(self.file)!r}, 'w').write('1'); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(HERE)})
        pid_in(self.file)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.assertTrue(children)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        self.assertTrue(all(has_ended(int(child)) for child in children))


class Wrapped(unittest.TestCase):
    def test_what_is_wide_is_wrapped_but_tables(self):
        word, table = "word " * 30, "| cell " * 30
        found = peers.wrapped(["# Title", "", f"* {word}", f"  {word}", table, word.strip(), ""])
        self.assertEqual(found[:2], ["# Title", ""])
        self.assertEqual([found[3], found[5]], [table, ""])
        lines = [line for at in (2, 4) for line in found[at].split("\n")]
        self.assertTrue(all(len(line) <= 100 for line in lines))
        self.assertEqual(" ".join(lines).split(), ["*"] + 90 * ["word"])
        self.assertTrue(all(line.startswith("  ") for line in found[2].split("\n")[1:]))


if __name__ == "__main__":
    unittest.main()
