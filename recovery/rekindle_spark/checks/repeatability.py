"""Functions that look as if a repeat could give something else: clocks, chance, the outside.

The code of each user function is read, with that of the helpers it calls, and what it calls is
looked up by name. That finds the usual causes, not all of them: `testing` finds more by running.
A step that is declared `deterministic=False` may do all of this. Nothing is run here.
"""

import builtins
import dis
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType

from rekindle_spark.checks.check_findings import CheckFinding, warning
from rekindle_spark.operators import KeyedStateful
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.user_code import code_locations

DEPTH_MAX = 6
CLOCK = "take the time from a column"
CHANCE = "seed it with something of the row"
OUTSIDE = "give it as a source and join, or load it when the pipeline is made"
PROCESS = "use something that is the same in every process"
# What a dotted name begins with, and what to do instead; the first that fits holds.
CALLS: tuple[tuple[str, str], ...] = (
    *((f"time.{name}", CLOCK) for name in ("time", "monotonic", "perf_counter", "process_time")),
    *((f"time.{name}", CLOCK) for name in ("localtime", "gmtime")),
    *((f"datetime.datetime.{name}", CLOCK) for name in ("now", "utcnow", "today")),
    ("datetime.date.today", CLOCK),
    *((f"pandas.Timestamp.{name}", CLOCK) for name in ("now", "utcnow", "today")),
    ("random.", CHANCE),
    ("numpy.random.", CHANCE),
    ("secrets.", CHANCE),
    ("os.urandom", CHANCE),
    *((f"uuid.{name}", "make it of the row, as with uuid.uuid5") for name in ("uuid1", "uuid4")),
    *((f"builtins.{name}", PROCESS) for name in ("hash", "id")),
    *((f"os.{name}", PROCESS) for name in ("getpid", "uname")),
    *((f"socket.{name}", PROCESS) for name in ("gethostname", "getfqdn")),
    *(
        (f"{name}.", OUTSIDE)
        for name in (
            *("requests", "httpx", "aiohttp", "urllib.request", "http.client", "boto3"),
            *("socket", "redis", "sqlite3", "psycopg", "psycopg2", "pymysql", "sqlalchemy"),
        )
    ),
)
# Fine with a seed, and by chance without arguments.
SEEDED = ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState")
FINE = (*SEEDED, "numpy.random.Generator", "numpy.random.SeedSequence", "random.seed")
SKIPPED = ("CACHE", "RESUME", "PUSH_NULL", "NOP", "EXTENDED_ARG", "PRECALL")


@dataclass(frozen=True, slots=True)
class _Use:
    """Something doubtful at a line of a function's code."""

    what: str
    remedy: str
    line: int


@dataclass(frozen=True, slots=True)
class _Names:
    """What a function finds under the names that are not its own variables."""

    globals: Mapping[str, object]
    closure: Mapping[str, object]

    def loaded_by(self, item: dis.Instruction) -> object:
        """What an instruction loads; None where that is not known."""
        if item.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            return self.globals.get(str(item.argval))
        return self.closure.get(str(item.argval)) if item.opname == "LOAD_DEREF" else None


def repeatability(program: Program) -> list[CheckFinding]:
    """Warn of functions that may give something else in a repeat, with file and line."""
    found: list[CheckFinding] = []
    for step in (step for chain in program.chains for step in (chain.root, *chain.steps)):
        for code, use in _uses_of(step) if step.deterministic else ():
            place = code_locations.place(code.co_filename, use.line)
            found.append(
                warning(
                    f"{place}: step {step.name}",
                    f"{use.what}, so a repeat after a failure may give something else and end "
                    "the run",
                    f"{use.remedy}, or declare the step deterministic=False: what follows is "
                    "uncertain then, and counts with checkpoints",
                )
            )
    return list(dict.fromkeys(found))


def _uses_of(step: Step) -> Iterator[tuple[CodeType, _Use]]:
    if isinstance(step.function, KeyedStateful):
        operator = type(step.function.operator)
        for method in _methods(operator):
            kept = method.__code__.co_name not in ("__init__", "__post_init__")
            yield from _uses(method, DEPTH_MAX, set(), operator=kept)
    elif step.kind in ("map", "filter"):
        function = code_locations.function_of(step.function)
        if function is not None:
            yield from _uses(function, DEPTH_MAX, set(), operator=False)


def _methods(kind: type) -> Iterator[FunctionType]:
    """The methods of a class that a user has written."""
    for base in kind.__mro__:
        for value in vars(base).values():
            if isinstance(value, FunctionType) and _is_users(value.__code__):
                yield value


def _is_users(code: CodeType) -> bool:
    return code_locations.is_users_file(code.co_filename)


def _uses(
    function: FunctionType, depth: int, seen: set[CodeType], *, operator: bool
) -> Iterator[tuple[CodeType, _Use]]:
    """What is doubtful in a function, the functions in it, and users' helpers that it names."""
    code = function.__code__
    if code in seen or not depth or not _is_users(code):
        return
    seen.add(code)
    names = _Names({**vars(builtins), **function.__globals__}, _closure(function))
    helpers: list[object] = []
    for inner in _nested(code):
        for use in _uses_in(inner, names, helpers, operator=operator and inner is code):
            yield inner, use
    for helper in helpers:
        plain = code_locations.function_of(helper)
        if plain is not None:
            yield from _uses(plain, depth - 1, seen, operator=False)


def _closure(function: FunctionType) -> dict[str, object]:
    found = {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _uses_in(
    code: CodeType, names: _Names, helpers: list[object], *, operator: bool
) -> Iterator[_Use]:
    """Read one code object; `helpers` gets the functions that it names."""
    items = [item for item in dis.get_instructions(code) if item.opname not in SKIPPED]
    local = _imports(items)
    line = code.co_firstlineno
    for place, item in enumerate(items):
        line = _line(item) or line
        if item.opname == "STORE_GLOBAL":
            yield _Use(f"changes the global {item.argval!r}", "keep it in a key's value", line)
        elif operator and item.opname == "STORE_ATTR" and _is_first(items[place - 1], code):
            what = f"keeps {item.argval!r} in the operator itself"
            yield _Use(what, "keep it in the value of the key", line)
        elif item.opname.startswith("LOAD_"):
            value = names.loaded_by(item)
            if isinstance(value, FunctionType | MethodType):
                helpers.append(value)
            is_local = item.opname.startswith("LOAD_FAST")
            name = local.get(str(item.argval), "") if is_local else _dotted(value)
            if name:
                yield from _calls(name, items[place + 1 :], line)
    yield from _orders(code, names)


def _imports(items: Iterable[dis.Instruction]) -> dict[str, str]:
    """The dotted names that a function imports for itself, by its variables."""
    found: dict[str, str] = {}
    module, name = "", ""
    for item in items:
        if item.opname == "IMPORT_NAME":
            module = name = str(item.argval)
        elif item.opname == "IMPORT_FROM":
            name = f"{module}.{item.argval}"
        elif item.opname == "STORE_FAST" and name:
            found[str(item.argval)], name = name, module
        elif item.opname not in ("LOAD_CONST", "POP_TOP", "STORE_FAST"):
            name = ""
    return found


def _line(item: dis.Instruction) -> int:
    positions = item.positions
    return 0 if positions is None else positions.lineno or 0


def _is_first(item: dis.Instruction, code: CodeType) -> bool:
    """Whether an instruction loads the function's first argument."""
    return item.opname.startswith("LOAD_FAST") and item.argval == (*code.co_varnames, "")[0]


def _dotted(value: object) -> str:
    """The dotted name of a module, class or function; of an instance that has one, its type's."""
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, MethodType | BuiltinMethodType) and not isinstance(
        value.__self__, ModuleType | type | None
    ):
        module = type(value.__self__).__module__
        if module == "numpy.random.mtrand":
            return f"numpy.random.{value.__name__}"
        return f"random.{value.__name__}" if type(value.__self__) is random.Random else ""
    if not callable(value):
        return ""
    owner = getattr(value, "__self__", None)
    found: str | None = getattr(value, "__module__", None)
    if found is None and isinstance(owner, type):
        found = owner.__module__
    return f"{found}.{getattr(value, '__qualname__', '')}" if found else ""


def _calls(name: str, rest: list[dis.Instruction], line: int) -> Iterator[_Use]:
    """Whether a dotted name with the attributes behind it is one of those to warn of."""
    followed = 0
    for item in rest:
        if item.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        name, followed = f"{name}.{item.argval}", followed + 1
    after = rest[followed] if followed < len(rest) else None
    is_bare = after is not None and after.opname == "CALL" and after.arg == 0
    if name in SEEDED and is_bare:
        yield _Use(f"calls {name}() without a seed", CHANCE, line)
        return
    if name.startswith(FINE):
        return
    for beginning, remedy in CALLS:
        if name == beginning or (name.startswith(beginning) and _goes_on(name, beginning)):
            yield _Use(f"uses {name.removeprefix('builtins.')}", remedy, line)
            return


def _goes_on(name: str, beginning: str) -> bool:
    """Whether a name is below another one, or a variant of it such as time.time_ns."""
    return beginning.endswith(".") or name[len(beginning) :] == "_ns"


def _orders(code: CodeType, names: _Names) -> Iterator[_Use]:
    """Groups whose order may differ: polars' and Arrow's, which go by threads."""
    if "group_by" not in code.co_names or _has_keyword(code, "maintain_order", "use_threads"):
        return
    lines = [_line(item) for item in dis.get_instructions(code) if item.argval == "group_by"]
    modules = {
        value.__name__.partition(".")[0]
        for value in names.globals.values()
        if isinstance(value, ModuleType)
    }
    remedy = "give group_by use_threads=False"
    if "polars" in modules:
        remedy = "give group_by maintain_order=True"
    yield _Use("uses group_by, whose groups have no fixed order", remedy, (lines or [0])[0])


def _has_keyword(code: CodeType, *words: str) -> bool:
    """Whether a call in the code has one of some keywords."""
    return any(
        isinstance(constant, tuple) and not set(words).isdisjoint(constant)
        for constant in code.co_consts
    )
