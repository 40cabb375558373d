"""Brings objects that tests share back to the state of their start."""

from __future__ import annotations

from collections import OrderedDict, deque
from copy import copy
from enum import Enum
from types import FunctionType, MethodType, ModuleType
from typing import Any

from google.protobuf.message import Message

OURS = "toban_"
# Nothing changes a message that was received.
_LEFT = (type, Enum, FunctionType, MethodType, ModuleType, Message)
_CONTAINERS = (dict, OrderedDict, list, set, deque)


class KeptState:
    """What `roots` and the objects of Toban and `threading` that they refer to hold now.

    Objects of the types in `without`, of other libraries, and in closures stay as they are.
    """

    def __init__(self, *roots: Any, without: tuple[type, ...] = ()) -> None:
        self._left = (*_LEFT, *without)
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._objects: dict[int, tuple[Any, dict[str, Any]]] = {}
        for root in roots:
            self._keep(root)

    def restore(self) -> None:
        """Every attribute and container is as it was. No other thread may use them now."""
        for container, held in self._containers.values():
            container.clear()
            if isinstance(container, (list, deque)):
                container.extend(held)
            else:
                container.update(held)
        for one, attributes in self._objects.values():
            for name in _attributes(one).keys() - attributes.keys():
                object.__delattr__(one, name)
            for name, value in attributes.items():
                object.__setattr__(one, name, value)

    def _keep(self, one: Any) -> None:
        if isinstance(one, self._left) or id(one) in self._containers or id(one) in self._objects:
            return
        if type(one) in _CONTAINERS:
            self._containers[id(one)] = one, copy(one)
            for value in one.values() if isinstance(one, dict) else one:
                self._keep(value)
        elif isinstance(one, tuple):
            for value in one:
                self._keep(value)
        elif type(one).__module__.startswith(OURS) or type(one).__module__ == "threading":
            attributes = _attributes(one)
            self._objects[id(one)] = one, attributes
            for value in attributes.values():
                self._keep(value)


def _attributes(one: Any) -> dict[str, Any]:
    slots = [name for kind in type(one).__mro__ for name in _slots(kind) if hasattr(one, name)]
    return {**getattr(one, "__dict__", {}), **{name: getattr(one, name) for name in slots}}


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    given = (names,) if isinstance(names, str) else tuple(names)
    return tuple(name for name in given if name not in ("__dict__", "__weakref__"))
