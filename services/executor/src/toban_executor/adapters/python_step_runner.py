"""The program of a step `type: python`: imports a callable and calls it with the payload.

Run as a file by the executor's interpreter, isolated and without site-packages (``-I -S``), so that it starts fast and a job sees nothing
of the executor's own packages; or by the interpreter that the step names. Standard library only, and as little of it as possible.

Usage: python -I -S python_step_runner.py own|any MODULE:FUNCTION [FOLDER ...]    (folders go before sys.path; the payload is in TOBAN_PAYLOAD_FILE)

With `own` the callable must not be one of the standard library that the module only shows (`from os import system`).

The keys of the payload are the keyword arguments, and what it returns is the result of the run, unless the job sets another.

Exit code 0 when it returns, 1 when it raises (its traceback, without the frames of this
file, is on stderr) or cannot be called (one line with the reason); sys.exit in the job counts as usual.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # The module `typing` costs milliseconds.
    from collections.abc import Callable
    from typing import Any


OWN, ANY = "own", "any"
_MOST_LAYERS = 100
_RESULT_SECONDS = 5.0


class NotCallableError(Exception):
    """There is nothing to call; the message names what and where."""


def load(target: str, folders: list[str], *, own: bool) -> Callable[..., object]:
    """The callable that `target` (module:name or module:name.name) means. Raises NotCallableError, or what the module raises."""
    module_name, _, path = target.partition(":")
    try:
        # Not importlib: the frames of the import machinery are left out of tracebacks only this way.
        __import__(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        looked = ", ".join(folders) or "nothing: give python_path"
        raise NotCallableError(
            f"there is no module {error.name!r} in the standard library or in python_path ({looked})"
        ) from None
    found: Any = sys.modules[module_name]
    for name in path.split("."):
        owner = found
        if not hasattr(owner, name):
            raise NotCallableError(_missing(module_name, owner, name))
        found = getattr(owner, name)
    if not callable(found):
        raise NotCallableError(f"{path!r} in {_file(module_name)} is {type(found).__name__!r}, which cannot be called")
    if own and (origin := foreign(module_name, found)):
        raise NotCallableError(
            f"{path!r} in {_file(module_name)} is of module {origin!r}; call it in a function of your own, or set `allow_shell: true`"
        )
    function: Callable[..., object] = found
    return function


def foreign(module_name: str, found: object) -> str:
    """The module of the standard library that `found` comes from, when it is another one than that of `module_name`; else empty."""
    named = module_name.partition(".")[0].strip("_")
    for one in _layers(found):
        origin = getattr(one, "__module__", None) or type(getattr(one, "__self__", one)).__module__
        root = str(origin).partition(".")[0]
        if root in sys.stdlib_module_names and root.strip("_") != named:
            return str(origin)
    return ""


def _layers(found: object) -> list[object]:
    """A callable and what decorators and functools.partial have wrapped in it."""
    layers: list[object] = []
    for _ in range(_MOST_LAYERS):
        if found is None:
            break
        partial = type(found).__module__ == "functools" and type(found).__name__ == "partial"
        if not partial:
            layers.append(found)
        found = getattr(found, "func" if partial else "__wrapped__", None)
    return layers


def read_payload() -> dict[str, Any]:
    """The payload as a dictionary."""
    with open(os.environ["TOBAN_PAYLOAD_FILE"], "rb", buffering=0) as file:  # noqa: PTH123 (pathlib costs milliseconds)
        text = file.read()
    if text.strip() in (b"", b"{}"):
        return {}
    import json

    payload: dict[str, Any] = json.loads(text)
    return payload


def prepare(arguments: list[str]) -> None:
    """In a zygote (warm_zygote.py): import what its forks need. `arguments` are the folders, ``--``, and the modules."""
    split = arguments.index("--")
    sys.path[:0] = arguments[:split]
    for name in arguments[split + 1 :]:
        __import__(name)


def main(whose: str, target: str, *folders: str) -> int:
    """Exit code of the step."""
    sys.argv = [target]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    # A pipe is block buffered: lines and progress markers would come late.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        function = load(target, list(folders), own=whose != ANY)
        payload = read_payload()
        result: Any = _call(function, payload)
        if hasattr(result, "cr_await"):
            import asyncio

            result = asyncio.run(result)
    except NotCallableError as error:
        return _print_error(f"callable {target!r}: {error}")
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.stdout.flush()
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
        if isinstance(error, ModuleNotFoundError):
            _print_error(
                f"module {error.name!r} is not there: packages of the executor are not seen; add its folder to python_path"
            )
        return 1
    if result is not None and (problem := _send_result(result)):
        _print_error(f"the return value of {target!r} is not the result of the run: {problem}")
    return 0


def _send_result(value: object) -> str:
    """Sets the result of the run unless the job has set it by TOBAN_SOCKET or a marker; what is wrong with it, or empty."""
    import json
    import socket

    path = os.environ.get("TOBAN_SOCKET", "")
    if not path:
        return ""
    try:
        request = json.dumps({"op": "output", "value": value, "returned": True}, allow_nan=False)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_RESULT_SECONDS)
            connection.connect(path)
            connection.sendall(request.encode() + b"\n")
            with connection.makefile("rb") as lines:
                # Lines without `ok` are events, such as a cancel.
                response: dict[str, Any] = next((one for one in map(json.loads, lines) if "ok" in one), {})
    except (OSError, TypeError, ValueError, RecursionError) as error:
        return str(error)
    return "" if response.get("ok") else str(response.get("error", "the executor did not respond"))


def _call(function: Callable[..., object], payload: dict[str, Any]) -> object:
    try:
        return function(**payload)
    except TypeError as error:
        trace = error.__traceback__
        # Raised by the call itself and not inside the function: the arguments do not fit.
        if trace is None or trace.tb_next is not None:
            raise
        given = ", ".join(payload) or "no keys"
        raise NotCallableError(f"{error}; the payload has {given}, {_wants(function)}") from None


def _wants(function: Callable[..., object]) -> str:
    import inspect

    try:
        return f"it takes {inspect.signature(function)}"
    except (TypeError, ValueError):
        return "and its keys are the keyword arguments"


def _missing(module_name: str, owner: object, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [word for word in dir(owner) if not word.startswith("_")], n=1)
    return f"{_file(module_name)} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _file(module_name: str) -> str:
    return f"module {module_name} ({getattr(sys.modules[module_name], '__file__', None) or 'built in'})"


def _print_error(line: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"toban: {line}\n")
    return 1


if __name__ == "__main__":
    if sys.path[0] == os.path.dirname(__file__):  # noqa: PTH120 (pathlib costs milliseconds)
        # It is no place for modules of the job.
        del sys.path[0]
    sys.exit(main(*sys.argv[1:]))
