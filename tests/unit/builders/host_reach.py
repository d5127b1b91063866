"""Which functions of ours a host's processes can come to, by the source and its annotations.

    programs ──names in their functions──► functions ──…──► all that a host may run

It begins with `main` of the modules that a host runs as programs, and with the methods of what a
program has when it is unpickled. A name leads to the function or class that it stands for. An
attribute leads to the method of the value's class, where annotations say which that is, and else to
every method of that name. So a function that is left out cannot run in a host, and one that is not
may be the driver's alone: that errs to the side of too many.
"""

import ast
import collections.abc
import importlib
import sys
import types
import typing
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

OWN = "rekindle"
Key = tuple[str, str]
# Foreign values: their attributes are nothing of ours.
FOREIGN: list[Any] = [object()]
PLAIN_BUILTINS = {
    *("len", "int", "str", "float", "bool", "bytes", "sum", "range", "memoryview", "print"),
    *("isinstance", "hasattr", "repr", "abs", "round", "any", "all", "bytearray", "issubclass"),
}
# Methods of containers and futures that return their items.
TAKING = {"pop", "popleft", "get", "get_nowait", "result", "copy"}
BARE = (dict, list, tuple, set, frozenset, deque)
DISPLAYS: dict[type, list[Any]] = {
    ast.List: [list],
    ast.ListComp: [list],
    ast.Tuple: [tuple],
    ast.Set: [set],
    ast.SetComp: [set],
    ast.Dict: [dict],
    ast.DictComp: [dict],
}
SAME_ELEMENTS = {"sorted", "list", "tuple", "set", "frozenset", "reversed", "iter", "deque"}
PICKLING = ("__getstate__", "__reduce__", "__getnewargs__", "__reduce_ex__")
UNPICKLING = "__setstate__"


@dataclass(frozen=True)
class ClassOf:
    """A class itself, not an instance of it."""

    cls: type


@dataclass(frozen=True)
class Above:
    """The value of `super()` in a class."""

    cls: type


@dataclass(frozen=True)
class Result:
    """A callable, by the types of its results; None where nobody knows."""

    types: tuple[Any, ...] | None


@dataclass(frozen=True)
class Span:
    """The lines of a function's body, in a file."""

    file: str
    first: int
    last: int
    key: Key


@dataclass
class Reach:
    """The reach of a host over some modules, the ones that it may import."""

    modules: list[ModuleType]
    functions: dict[Key, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[Key, ast.ClassDef] = field(default_factory=dict)
    methods: dict[str, list[Key]] = field(default_factory=dict)
    found: set[Key] = field(default_factory=set)
    waiting: list[Key] = field(default_factory=list)
    constructed: set[type] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.by_name = {module.__name__: module for module in self.modules}
        self.programs: list[Key] = []
        for module in self.modules:
            self._index(module)
        for key in self.programs:
            self._enter(key)
        self._go_on()
        # a program is unpickled: that calls this method of each class, and no constructor
        for key in self.methods.get(UNPICKLING, ()):
            self._enter(key)
        self._go_on()

    @cached_property
    def spans(self) -> list[Span]:
        """All functions with their lines."""
        return [
            Span(
                str(self.by_name[key[0]].__file__),
                node.body[0].lineno,
                node.end_lineno or node.lineno,
                key,
            )
            for key, node in self.functions.items()
        ]

    def _index(self, module: ModuleType) -> None:
        for node in _parsed(module).body:
            if isinstance(node, ast.FunctionDef):
                self.functions[module.__name__, node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[module.__name__, node.name] = node
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        key = module.__name__, f"{node.name}.{inner.name}"
                        self.functions[key] = inner
                        self.methods.setdefault(inner.name, []).append(key)
            elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
                self.programs.append((module.__name__, "main"))

    def _go_on(self) -> None:
        while self.waiting:
            key = self.waiting.pop()
            _Body(self, key, self.functions[key]).follow()

    def _enter(self, key: Key) -> None:
        if key in self.functions and key not in self.found:
            self.found.add(key)
            self.waiting.append(key)

    def mention(self, value: Any) -> None:
        """A function or class is named: it may be called."""
        value = getattr(value, "__wrapped__", value)
        for inner in value.values() if isinstance(value, dict) else ():
            self.mention(inner)
        if isinstance(value, property):
            value = value.fget
        if isinstance(value, cached_property):
            value = value.func
        if isinstance(value, type):
            self._construct(value)
        elif isinstance(value, types.FunctionType | types.MethodType):
            self._enter((value.__module__, value.__qualname__))

    def _construct(self, cls: type) -> None:
        if cls in self.constructed:
            return
        self.constructed.add(cls)
        theirs = [one for one in cls.__mro__ if not _is_own(one) and one is not object]
        for one in cls.__mro__:
            key = one.__module__, one.__qualname__
            if key not in self.classes:
                continue
            # a library calls the methods that it knows from its own base class
            for name in vars(one):
                if any(hasattr(other, name) for other in theirs):
                    self.enter_method(one, name)
            for node in self.classes[key].body:
                if not isinstance(node, ast.FunctionDef):
                    _Body(self, key, node).follow()
                elif node.name.startswith("__") and node.name not in (*PICKLING, UNPICKLING):
                    self._enter((key[0], f"{key[1]}.{node.name}"))

    def method(self, cls: type, name: str) -> None:
        """A method of an instance is named."""
        if getattr(cls, "_is_protocol", False):
            self.any_method(name)
            return
        for one in (*cls.__mro__, *_below(cls)):
            self.enter_method(one, name)

    def enter_method(self, cls: type, name: str) -> None:
        """A method that a class has itself may be called."""
        self._enter((cls.__module__, f"{cls.__qualname__}.{name}"))

    def any_method(self, name: str) -> None:
        """A method is named of a value without a known type."""
        for key in () if name.startswith("__") else self.methods.get(name, ()):
            self._enter(key)


class _Body:
    """The names that one function's source mentions."""

    def __init__(self, reach: Reach, key: Key, node: ast.AST) -> None:
        self.reach, self.node = reach, node
        self.module = reach.by_name[key[0]]
        self.names = {**vars(self.module), **_imported_in(node)}
        owner = key[1].partition(".")[0] if "." in key[1] else ""
        self.cls = self.names.get(owner)
        self.locals: dict[str, list[Any] | None] = {}

    def follow(self) -> None:
        """Enter all functions and classes that are mentioned."""
        if isinstance(self.node, ast.FunctionDef):
            self._parameters(self.node)
            for _ in range(2):  # what is known of a name may be used before it stands there
                for node in _parts(self.node):
                    self._bind(node)
        for node in _parts(self.node):
            if isinstance(node, ast.Name) and node.id not in self.locals:
                self.reach.mention(self.names.get(node.id))
            elif isinstance(node, ast.Attribute):
                self._attribute(node)

    def _attribute(self, node: ast.Attribute) -> None:
        found = self._type(node.value)
        if found is None:
            self.reach.any_method(node.attr)
            return
        for one in found:
            if isinstance(one, ModuleType):
                self.reach.mention(getattr(one, node.attr, None))
            elif isinstance(one, ClassOf):
                self.reach.method(one.cls, node.attr)
            elif isinstance(one, Above):
                for above in one.cls.__mro__[1:]:
                    self.reach.enter_method(above, node.attr)
            elif _is_own(one):
                self.reach.method(one, node.attr)

    def _parameters(self, node: ast.FunctionDef) -> None:
        value = vars(self.cls).get(node.name) if self.cls is not None else None
        value = self.names.get(node.name) if value is None else value
        hints = _hints(value)
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for one in every:
            self.locals[one.arg] = _of_hint(hints.get(one.arg, Any))
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                self.locals[rest.arg] = None
        if self.cls is not None and every and every[0].arg in ("self", "cls"):
            own = ClassOf(self.cls) if every[0].arg == "cls" else self.cls
            self.locals[every[0].arg] = [own]

    def _bind(self, node: ast.AST) -> None:
        """Take the types of names from a statement."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign_value(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            hint = _evaluated(ast.unparse(node.annotation), self.names)
            self._assign(node.target, _of_hint(hint))
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, self._type(node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            self._assign(node.target, _elements(self._type(node.iter)))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(node.optional_vars, _entered(self._type(node.context_expr)))
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._assign(ast.Name(node.name), None)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            for one in node.args.args if node is not self.node else ():
                self.locals.setdefault(one.arg, None)

    def _assign_value(self, target: ast.expr, value: ast.expr) -> None:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for one, given in zip(target.elts, value.elts, strict=True):
                self._assign_value(one, given)
        else:
            self._assign(target, self._type(value))

    def _assign(self, target: ast.expr, found: list[Any] | None) -> None:
        if isinstance(target, ast.Name):
            known = self.locals.get(target.id, [])
            both = None if known is None or found is None else [*known, *found]
            if target.id not in self.locals or not self.locals[target.id]:
                both = found
            self.locals[target.id] = both
        elif isinstance(target, ast.Tuple | ast.List):
            each = _items(found, len(target.elts))
            for inner, kinds in zip(target.elts, each, strict=True):
                self._assign(inner, kinds)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None)

    def _type(self, node: ast.expr) -> list[Any] | None:
        """The types that a value may have; None where nobody knows."""
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return self.locals[node.id]
            return _of_value(self.names.get(node.id, getattr(typing, node.id, None)), node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute_type(node)
        if isinstance(node, ast.Call):
            return self._call_type(node)
        if isinstance(node, ast.Subscript):
            return _value_of_item(self._type(node.value))
        if isinstance(node, ast.IfExp):
            return _union([self._type(node.body), self._type(node.orelse)])
        if isinstance(node, ast.BoolOp):
            return _union(map(self._type, node.values))
        if isinstance(node, ast.NamedExpr):
            return self._type(node.value)
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare | ast.BinOp):
            return FOREIGN
        return DISPLAYS.get(type(node))

    def _attribute_type(self, node: ast.Attribute) -> list[Any] | None:
        found = self._type(node.value)
        if found is None:
            return None
        return _union(_attribute_of(one, node.attr) for one in found)

    def _call_type(self, node: ast.Call) -> list[Any] | None:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            assert self.cls is not None
            return [Above(self.cls)]
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.args and (called in SAME_ELEMENTS or called == "replace"):
            return self._type(node.args[0])
        found = self._type(node.func)
        if found is None:
            return None
        return _union(_called(one) for one in found)


def _imported_in(node: ast.AST) -> dict[str, Any]:
    """Our modules that a function imports itself, when they are first needed."""
    found: dict[str, Any] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith(OWN):
            module = importlib.import_module(str(one.module))
            for alias in one.names:
                below = f"{one.module}.{alias.name}"
                found[alias.asname or alias.name] = getattr(module, alias.name, None) or (
                    importlib.import_module(below)
                )
    return found


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or statement that run: no annotations, no classes in comparisons."""
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        yield one
        for name, value in ast.iter_fields(one):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(one, ast.ExceptHandler) and name == "type":
                continue
            if isinstance(one, ast.MatchClass) and name == "cls":
                continue
            children = value if isinstance(value, list) else [value]
            if isinstance(one, ast.Call) and name == "args" and _compares(one.func):
                children = children[:1]
            waiting += [child for child in children if isinstance(child, ast.AST)]


def _compares(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) and called.id in ("isinstance", "issubclass", "cast")


def _below(cls: type) -> Iterator[type]:
    one: type
    for one in type.__subclasses__(cls):
        yield one
        yield from _below(one)


def _is_own(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.startswith(OWN)


def _hints(value: Any) -> dict[str, Any]:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "func", value) if isinstance(value, cached_property) else value
    return _hints_of(getattr(value, "__wrapped__", getattr(value, "__func__", value)))


@cache
def _hints_of(value: Any) -> dict[str, Any]:
    module = sys.modules.get(getattr(value, "__module__", ""))
    try:
        return typing.get_type_hints(value, {**_classes(), **vars(module or typing)})
    except (NameError, TypeError, AttributeError):
        return {}


@cache
def _own_hints(cls: type) -> dict[str, Any]:
    """The types of attributes, by assignments in the methods of a class."""
    module = sys.modules[cls.__module__]
    found: dict[str, Any] = {}
    for node in _parsed(module).body:
        for one in ast.walk(node) if getattr(node, "name", "") == cls.__name__ else ():
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Attribute):
                names = {**_classes(), **vars(module)}
                found[one.target.attr] = _evaluated(ast.unparse(one.annotation), names)
            elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
                made = vars(module).get(ast.unparse(one.value.func))
                for target in one.targets if isinstance(made, type) else ():
                    if isinstance(target, ast.Attribute):
                        found[target.attr] = made
    return found


@cache
def _classes() -> dict[str, Any]:
    """All classes of ours by their names, of which each has one: what is imported for checkers of
    types alone is not in its module."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(OWN):
            found |= {key: value for key, value in vars(module).items() if _is_own(value)}
    return found


@cache
def _parsed(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text())


def _evaluated(text: str, names: dict[str, Any]) -> Any:
    try:
        return eval(text, dict(names))
    except (NameError, TypeError, AttributeError):
        return Any


def _of_hint(hint: Any) -> list[Any] | None:
    """The types of an annotation."""
    if hint is None or hint is type(None):
        return []
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(map(_of_hint, typing.get_args(hint)))
    if origin is type:
        return [ClassOf(one) for one in typing.get_args(hint)]
    if origin is collections.abc.Callable:
        results = _of_hint(typing.get_args(hint)[-1])
        return [Result(None if results is None else tuple(results))]
    if origin is not None:
        return [hint]
    if hint in (Any, object) or not isinstance(hint, type):
        return None
    return [hint]


def _of_value(value: Any, name: str) -> list[Any] | None:
    """The types of a global of a module."""
    if isinstance(value, ModuleType):
        return [value]
    if isinstance(value, type):
        made = (value,) if value in BARE else tuple(FOREIGN)
        return [ClassOf(value)] if _is_own(value) else [Result(made)]
    if callable(value) and hasattr(value, "__module__"):
        if str(value.__module__).startswith(OWN):
            return _of_function(value)
        package = str(value.__module__).partition(".")[0]
        is_library = package not in sys.stdlib_module_names and package != "builtins"
        return [Result(tuple(FOREIGN))] if is_library else None
    if value is None:
        return [Result(tuple(FOREIGN))] if name in PLAIN_BUILTINS else None
    return [type(value)]


def _of_function(value: Any) -> list[Any]:
    found = _of_hint(_hints(value).get("return", Any))
    return [Result(None if found is None else tuple(found))]


def _attribute_of(one: Any, name: str) -> list[Any] | None:
    if isinstance(one, ModuleType):
        if name in vars(one):
            return _of_value(vars(one)[name], name)
        is_library = one.__name__.partition(".")[0] not in sys.stdlib_module_names
        return [Result(tuple(FOREIGN))] if is_library else None
    if isinstance(one, ClassOf):
        one = one.cls
    if _is_own(one):
        value = next((vars(c)[name] for c in one.__mro__ if name in vars(c)), None)
        if isinstance(value, property | cached_property):
            return _of_hint(_hints(value).get("return", Any))
        if isinstance(value, types.FunctionType | staticmethod | classmethod):
            return _of_function(value)
        return _of_hint(_hints(one).get(name) or _own_hints(one).get(name, Any))
    if typing.get_origin(one) is not None:
        return _of_container(one, name)
    gives = name in TAKING or name in ("setdefault", "values", "items")
    return [Result(None)] if one in BARE and gives else FOREIGN


def _of_container(one: Any, name: str) -> list[Any] | None:
    values, origin = typing.get_args(one), typing.get_origin(one)
    if _is_own(origin):
        return _attribute_of(origin, name)
    is_mapping = isinstance(origin, type) and issubclass(origin, collections.abc.Mapping)
    if not is_mapping or len(values) != 2:
        given = _of_hint(values[0]) if values and name in TAKING else FOREIGN
        return [Result(None if given is None else tuple(given))]
    key, value = values
    if name in ("get", "pop", "setdefault"):
        found = _of_hint(value)
        return [Result(None if found is None else tuple(found))]
    if name == "items":
        return [Result((list[tuple[key, value]],))]  # type: ignore[valid-type]
    if name in ("values", "keys"):
        return [Result((list[value if name == "values" else key],))]  # type: ignore[misc]
    return FOREIGN


def _called(one: Any) -> list[Any] | None:
    if isinstance(one, ClassOf):
        return [one.cls]
    if isinstance(one, Result):
        return None if one.types is None else list(one.types)
    if _is_own(one):
        call = getattr(one, "__call__", None)  # noqa: B004
        return _of_hint(_hints(call).get("return", Any))
    return FOREIGN


def _elements(found: list[Any] | None) -> list[Any] | None:
    """The types of the items of a value."""
    if found is None:
        return None
    gathered: list[list[Any] | None] = []
    for one in found:
        arguments = [kind for kind in typing.get_args(one) if kind is not Ellipsis]
        if arguments and typing.get_origin(one) is tuple:
            gathered += map(_of_hint, arguments)
        elif arguments:
            gathered.append(_of_hint(arguments[0]))
        else:
            gathered.append(None if _is_own(one) or one in BARE else FOREIGN)
    return _union(gathered)


def _items(found: list[Any] | None, count: int) -> list[list[Any] | None]:
    """The types of the parts of a value that is taken apart."""
    if found is not None and len(found) == 1 and typing.get_origin(found[0]) is tuple:
        arguments = typing.get_args(found[0])
        if len(arguments) == count and Ellipsis not in arguments:
            return list(map(_of_hint, arguments))
    return [_elements(found)] * count


def _value_of_item(found: list[Any] | None) -> list[Any] | None:
    if found is None:
        return None
    gathered: list[list[Any] | None] = []
    for one in found:
        arguments = [kind for kind in typing.get_args(one) if kind is not Ellipsis]
        if arguments and typing.get_origin(one) is tuple:
            gathered += map(_of_hint, arguments)
        else:
            bare = None if one in BARE else FOREIGN
            gathered.append(_of_hint(arguments[-1]) if arguments else bare)
    return _union(gathered)


def _entered(found: list[Any] | None) -> list[Any] | None:
    """The types of the target of a `with`."""
    if found is None:
        return None
    gathered: list[list[Any] | None] = []
    for one in found:
        arguments = typing.get_args(one)
        if arguments:
            gathered.append(_of_hint(arguments[0]))
        else:
            gathered.append([one])
    return _union(gathered)


def _union(several: Iterable[list[Any] | None]) -> list[Any] | None:
    found: list[Any] = []
    for one in several:
        if one is None:
            return None
        found += [kind for kind in one if kind not in found]
    return found
