"""Starting jobs of processes from Python, for notebooks."""

import collections
import io
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types

# What each PE of a function runs: the function comes pickled, and the results go to a folder. NumPy
# is imported first, as that looks at clocks, which takes time on a simulated machine.
_PROGRAM = """
import pickle, sys, time
import memonet, numpy
folder = sys.argv[1]
try:
    with open(f"{folder}/function", "rb") as file:
        function = pickle.load(file)
except FileNotFoundError:
    sys.exit(f"{folder} of the host that launches is not here: set TMPDIR there to a folder that all "
             "hosts see, or launch a program in place of a function")
job = memonet.init()
started = time.monotonic_ns()
result = function(job)
ended = time.monotonic_ns()
with open(f"{folder}/{job.pe}", "wb") as file:
    pickle.dump((result, started, ended), file)
"""


class LaunchError(RuntimeError):
    """A job that `launch` started has failed. `status` is its exit status."""

    def __init__(self, status, output, why=None):
        why = why or f"the job ended with status {status}"
        super().__init__(f"{why}; its last lines:\n{output}")
        self.status = status


def command():
    """The path of the command `memonet` that belongs to this package, or else of any."""
    beside = os.path.join(sysconfig.get_path("scripts"), "memonet")
    found = beside if os.access(beside, os.X_OK) else shutil.which("memonet")
    if found is None:
        raise FileNotFoundError(
            "there is no command `memonet`: install the package with pip, or put the command on PATH"
        )
    return found


def _dump(function, path):
    """Pickles a function: by value where cloudpickle is installed."""
    try:
        import cloudpickle
    except ImportError:
        data = _by_name(function)
    else:
        data = _by_value(function, cloudpickle)
    with open(path, "wb") as file:
        file.write(data)


def _by_value(function, cloudpickle):
    """Pickles a function with its code. Tracebacks and reports then name its file, which cloudpickle
    from 3.1.3 on leaves out."""

    def reduce(code):
        make, parts = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
        return _with_file, (make, parts, code.co_filename)

    class Pickler(cloudpickle.Pickler):
        dispatch_table = collections.ChainMap(
            {types.CodeType: reduce}, cloudpickle.Pickler.dispatch_table
        )

    data = io.BytesIO()
    Pickler(data).dump(function)
    return data.getvalue()


def _with_file(make, parts, filename):
    return make(*parts).replace(co_filename=filename)


def _by_name(function):
    """Pickles a function that other processes can import."""
    if getattr(function, "__module__", None) != "__main__":
        try:
            return pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # it is defined inside of another one, or keeps what cannot be pickled
    raise TypeError(
        f"other processes cannot import {getattr(function, '__qualname__', function)!s}, as it is "
        "defined in a notebook, in the program itself, or in another function: pip install "
        "cloudpickle, or move it to a module"
    ) from None


# Seconds in which a job ends its PEs, before it is killed.
_ENDS_IN = 10.0


def _end(process):
    """Ends a job whose output nobody reads any more. The pipe is closed, as PEs cannot end while they
    wait for room in a full one."""
    process.terminate()
    try:
        process.stdout.close()
        process.wait(_ENDS_IN)
    except BaseException:
        # The time has passed, or this is a second Ctrl-C.
        process.kill()
        process.wait()


def _run(arguments, echo):
    """Runs a command, and shows its output as it comes. Gives its last lines."""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        last = []
        try:
            for line in process.stdout:
                last = (last + [line])[-20:]
                if echo:
                    print(line, end="")
            status = process.wait()
        except BaseException:
            _end(process)
            raise
    if status != 0:
        raise LaunchError(status, "".join(last))
    return "".join(last)


def launch(program, n, *arguments, options=(), echo=True):
    """Starts `n` processes as a job, shows their output, and waits for them.

    `program` is the path of a Python program, which gets `arguments`, or a function, which is called
    as `function(job)`. Of a function gives what each PE returned, by PE. `options` are those of
    `memonet run`, as in `options=["--machine", "dimmnet-1/D"]`. Raises `LaunchError` when the job
    fails.
    """
    if isinstance(options, str):
        raise TypeError('options are a list of words, as in options=["--watch"]')
    if not callable(program):
        start = [command(), "run", "-n", str(n), *options, sys.executable, "-u"]
        _run([*start, os.fspath(program), *map(str, arguments)], echo)
        return None
    if arguments:
        raise TypeError("a function gets the job alone: bind other arguments with functools.partial")
    return [result for result, _, _ in call(program, n, options, echo)]


def call(function, n, options, echo):
    """Calls a function at `n` PEs; gives what each returned, and when it began and ended, in
    nanoseconds of its clock."""
    if not callable(function):
        raise TypeError(f"give a function that takes the job, not {type(function).__name__}")
    start = [command(), "run", "-n", str(n), *options, sys.executable, "-u", "-c", _PROGRAM]
    with tempfile.TemporaryDirectory(prefix="memonet-") as folder:
        _dump(function, f"{folder}/function")
        last = _run([*start, folder], echo)
        return [_result(f"{folder}/{pe}", pe, last) for pe in range(n)]


def _result(path, pe, last):
    """What a PE has left in a file. An exit with status 0 leaves none, as it ends the program."""
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        why = f"PE {pe} has ended its process before its function returned"
        raise LaunchError(0, last, why) from None
