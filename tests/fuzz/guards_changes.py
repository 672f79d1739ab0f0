"""Programs of guards_fuzz.py that read the same objects in each call, while statements between the calls change what
the objects are: class attributes, descriptors, special methods, bases, hooks, defaults, code, globals, cells, keys.
"""
import random
import re
import textwrap

from guards_tables import WORLD, split

# `o` is a Child, `d` a dict, `net` a module; the other names are globals.
PRELUDE = WORLD + """
import abc
class Kept:
    def __init__(self, v): self.v = v
class Abstract(abc.ABC): pass
class Base:
    def m(self): return 'base'
    @classmethod
    def c(cls): return cls.__name__
    @staticmethod
    def s(): return 'static'
    @property
    def p(self): return 'property'
class Own(Base):
    a = 1
    kept = Kept(3)
    def m(self): return super().m() + '!'
class Another(Base): a = 4
def make_cell(v):
    def put(new):
        nonlocal v
        v = new
    def drop():
        nonlocal v
        del v
    return (lambda: v), put, drop
read_cell, put_cell, drop_cell = make_cell(1)
def called(v, k=2, *, w=3): return v, k, w
def stand_in(v, k=5, *, w=6): return 'stand-in', v, k, w
def hook(module, inputs, output): return output + 1
def before(module, inputs): return (inputs[0] * 2,)
o, d, net, part, HELD = Own(), {'a': 1, 'b': 2}, Net(), functools.partial(called, 1), 1
bound, sequence = o.m, nn.Sequential(nn.Identity(), Net())
space.a = 1
"""

READS = """
o.a ; o.m() ; o.p ; o.c() ; o.s() ; o.kept ; Own.a ; Own.kept ; type(o).a ; o.__class__.__name__ ;
getattr(o, 'zz', 'none') ; hasattr(o, 'zz') ; o.missing ; vars(o) ; len(o) ; bool(o) ; (1 if o else 2) ; o == 1 ;
o != 1 ; o + 1 ; 1 + o ; o[0] ; o < 2 ; -o ; o() ; 1 in o ; [*o] ; f'{o!s:>3}'[:3] ; str(o)[:5] ; hash(o) == hash(o) ;
{o: 1}[o] ; isinstance(o, Base) ; isinstance(o, Another) ; isinstance(o, Abstract) ;
isinstance(o, collections.abc.Sized) ; issubclass(Own, Abstract) ; callable(o) ; Own.__mro__[1].__name__ ; o.__doc__ ;
iter(o) is o ; operator.index(o) ; int(o) ; float(o) ; abs(o) ; round(o) ; called(0) ; called(0, 1) ;
called.__name__ ; called.tag ; called.__defaults__ ; part() ; part.args ; part.func ; bound() ; read_cell() ; HELD ;
HELD + 1 ; HELD == 1 ; HELD is True ; type(HELD) ; x * HELD ; [1, 2, 3][HELD] ; {1: 'one'}.get(HELD) ; f'{HELD}' ;
space.a ; space.b ; d ; [*d] ; d['a'] ; d.get('c') ; len(d) ; list(d.items()) ; 'c' in d ; d | {'z': 1} ;
(lambda **k: k)(**d) ; net(x) ; net.forward(x) ; net.w ; net.w.requires_grad ; net.training ; net.a ; net.extra ;
[n for n, _ in net.named_parameters()] ; len(list(net.modules())) ; net.w.grad ; sequence(x) ; len(sequence) ;
sequence[1].w ; list(net._forward_hooks.values()) ; Number.A ; Number(2) ; Number.ALIAS is Number.A ; list(Number) ;
Name['B'] ; Made.a ; len(Made) ; Made() ; Made.b ; isinstance(o, Made) ; len('ab') ; len([1]) ; abs(-1) ; max(1, 2) ;
Pair(1, 2).p ; Data(1) == Data(1) ; Data().a ; Frozen(1) < Frozen(2) ; math.floor(2.5)
"""

CHANGES = """
Own.a = 5 ; Own.a = 1.0 ; Own.a = True ; Base.a = 6 ; del Own.a ; o.a = 7 ; o.a = 1 ; del o.a ; vars(o).update(a=8) ;
vars(o).clear() ; Own.m = lambda self: 'new' ; del Own.m ; Base.m = lambda self: 'new base' ; o.m = lambda: 'own' ;
del o.m ; Own.a = property(str) ; Own.p = 3 ; Base.p = property(lambda self: 'other') ;
Own.c = classmethod(lambda cls: 'c') ; Own.s = staticmethod(lambda: 's') ; Own.kept = Kept(4) ; Own.kept.v = 5 ;
Kept.__get__ = lambda self, o, t: ('got', self.v) ; Kept.__set__ = lambda self, o, v: None ; del Kept.__get__ ;
o.kept = 9 ; o.zz = 1 ; Own.zz = None ; del o.zz ; del Own.zz ; Base.__getattr__ = lambda self, n: 'any ' + n ;
del Base.__getattr__ ; Own.__getattribute__ = lambda self, n: object.__getattribute__(self, n) ;
del Own.__getattribute__ ; Own.__getattribute__ = lambda self, n: 'all' ; Base.__len__ = lambda self: 4 ;
Own.__len__ = lambda self: 0 ; del Base.__len__ ; del Own.__len__ ; Base.__bool__ = lambda self: False ;
del Base.__bool__ ; Own.__eq__ = lambda self, other: True ; del Own.__eq__ ; Own.__hash__ = lambda self: 5 ;
Own.__hash__ = None ; Base.__add__ = lambda self, v: 'sum' ; Own.__add__ = Base.__dict__.get('__add__') ;
Base.__radd__ = lambda self, v: 'right' ; del Base.__add__ ; Base.__getitem__ = lambda self, i: [3, 4][i] ;
del Base.__getitem__ ; Base.__neg__ = lambda self: 'minus' ; Base.__call__ = lambda self: 'called' ;
del Base.__call__ ; Base.__lt__ = lambda self, v: True ; Base.__contains__ = lambda self, v: True ;
Base.__iter__ = lambda self: iter('ab') ; del Base.__iter__ ;
Base.__str__ = lambda self: 'text of o' ; Base.__format__ = lambda self, spec: 'formatted' ;
Base.__index__ = lambda self: 2 ; Base.__int__ = lambda self: 4 ; Base.__float__ = lambda self: 1.5 ;
Base.__abs__ = lambda self: 2 ; Base.__round__ = lambda self: 9 ; Base.__setattr__ = lambda self, n, v: None ;
Own.__doc__ = 'text' ; o.__doc__ = 'own text' ; o.__class__ = Another ; o.__class__ = Own ;
Own.__bases__ = (Another,) ; Own.__bases__ = (Base,) ; Abstract.register(Own) ;
Meta.__instancecheck__ = lambda cls, v: True ; Meta.__len__ = lambda cls: 8 ; Meta.b = 5 ; Made.b = 6 ; Made.a = 7 ;
del Made.b ; Meta.__getattr__ = lambda cls, n: n ; Meta.__call__ = type.__call__ ; called.__defaults__ = (4,) ;
called.__defaults__ = None ; called.__kwdefaults__ = {'w': 7} ; called.__kwdefaults__ = None ;
called.__code__ = stand_in.__code__ ; called.tag = 3 ; called.tag = 4 ; del called.tag ; called.__name__ = 'renamed' ;
called = stand_in ; called = given ; part = functools.partial(called, 3) ;
part.__setstate__((stand_in, (4,), {}, {})) ; bound = o.m ; bound = len ; put_cell(2) ; put_cell(True) ;
put_cell(1.0) ; put_cell('v') ; drop_cell() ; HELD = True ; HELD = 1.0 ; HELD = 1 ; HELD = Int(1) ;
HELD = Counted(1) ; HELD = 2 ; HELD = -0.0 ; HELD = 0.0 ; HELD = float('nan') ; HELD = Number.A ; HELD = 'one' ;
HELD = np.int64(1) ; HELD = torch.tensor(1) ; del HELD ; space.a = 1.0 ; space.a = 2 ; space.b = 3 ; del space.a ;
space.__class__ = type('Space', (types.ModuleType,), {'b': 'of the class'}) ;
space.__getattr__ = lambda n: 'module ' + n ; d['c'] = 3 ; d['a'] = 1.0 ; d['a'] = True ; d.pop('a') ; d.update(a=1) ;
d = dict(reversed(d.items())) ; d = Missing(d) ; d = Dict(d) ; d = collections.OrderedDict(d) ; d = {'a': 1, 'b': 2} ;
d.clear() ; d = {1: 'a', 'b': 2} ; d = {True: 'a', 'a': 3} ; net.register_forward_hook(hook) ;
net.register_forward_pre_hook(before) ; net._forward_hooks.clear() ; net._forward_pre_hooks.clear() ; net.eval() ;
net.train() ; net.w = nn.Parameter(torch.zeros(2)) ; net.w.requires_grad_(False) ; net.w.requires_grad_(True) ;
net.w.data = torch.full((2,), 3.0) ; net.w.grad = torch.ones(2) ; del net.w ; net.w = None ;
net.forward = lambda x: x - 1 ; Net.forward = lambda self, x: x - 2 ; net.extra = nn.ReLU() ; net.a = 8 ; Net.a = 9 ;
net.extra = 5 ; net.to(torch.float64) ; net = Net() ; net.requires_grad_(False) ;
nn.utils.parametrize.register_parametrization(net, 'w', nn.ReLU()) ; Net.__call__ = lambda self, x: 'called' ;
sequence.append(nn.ReLU()) ; sequence[1] = nn.Identity() ; sequence[0] = net ; del sequence[1] ;
sequence[1].register_forward_hook(hook) ; Number._member_map_['B'] = Number.A ; Number = Name ; Name.B._value_ = 7 ;
len = called ; del len ; abs = max ; max = min ; del abs ; del max ; Data.__eq__ = lambda self, other: 'equal' ;
Data.a = 5 ; Frozen.__lt__ = None ; Pair.p = property(lambda self: 'p') ;
Pair = collections.namedtuple('Pair', 'q p') ; math = types.SimpleNamespace(floor=round)
"""
READS, CHANGES = split(READS), split(CHANGES)
CODE = compile(PRELUDE, "<world>", "exec")
CALLS = 14


# What a read asks for beside its own words.
ASKS = {"callable": "__call__", "o()": "__call__", "isinstance": "__bases__ __class__ __instancecheck__ register",
        "issubclass": "__bases__ register", "[*o]": "__iter__", "in o": "__contains__ __iter__",
        "f'{o": "__format__ __str__", "o +": "__add__", "+ o": "__radd__", "o ==": "__eq__", "o !=": "__eq__",
        "{o:": "__eq__ __hash__", "o[": "__getitem__", "o <": "__lt__", "-o": "__neg__", "o.": "Own Base o",
        "else 2": "__bool__ __len__", "net": "Net net", "sequence": "net sequence", "bound": "Own Base",
        "read_cell": "put_cell drop_cell", "Data": "__eq__", "Made": "Meta"}


def words(text):
    return set(re.findall(r"\w+", text))


def related_changes(read):
    asked = words(read) | {f"__{word}__" for word in words(read)}
    for part, more in ASKS.items():
        asked |= set(more.split()) if part in read else set()
    asked -= {"o", "x", "1", "2", "lambda", "self"} if "o." not in read else {"x", "1", "2", "lambda", "self"}
    return [k for k, row in enumerate(CHANGES) if words(row.split("lambda")[0]) & asked]


class Program:
    """Some reads, and the changes before each call; some calls change nothing."""

    def __init__(self, seed, reads=None):
        self.rng = rng = random.Random(seed)
        self.reads = reads or [rng.choice(READS) for _ in range(rng.randint(1, 3))]
        self.arguments = rng.choice(["x", "x, o", "x, o, d", "x, o, d, net, called"])
        self.grad, self.dynamic = rng.random() < 0.2, rng.choice([None, None, None, True, False])
        related = [k for read in self.reads for k in related_changes(read)] or [None]
        self.calls = [(None,)] + [(rng.choice([None, rng.choice(related), rng.choice(related), rng.choice(related),
                                               rng.randrange(len(CHANGES))]),) for _ in range(CALLS - 1)]

    def source(self):
        tries = "".join(f"try: r{k} = {read}\nexcept Exception as e: r{k} = type(e).__name__, str(e)\n"
                        for k, read in enumerate(self.reads))
        results = ", ".join(f"r{k}" for k in range(len(self.reads)))
        return f"def f({self.arguments}):\n{textwrap.indent(tries, '    ')}    return ({results},), x + 1\n"

    def shown(self):
        changes = "".join(f"  {'' if k is None else CHANGES[k]}\n" for k, in self.calls)
        return f"{self.source()}{'with' if self.grad else 'without'} gradients, dynamic={self.dynamic}; before each " \
               f"call:\n{changes}"

    def world(self, seed, change):
        return World(self, seed, change)


class World:
    """The program on one side of the comparison."""

    def __init__(self, program, seed, change):
        self.scope = {"__name__": "world"}
        exec(CODE, self.scope)
        exec(compile(program.source(), f"<guards {seed}>", "exec"), self.scope)
        self.scope["compiled"] = change(self.scope["f"])
        self.call = compile(f"compiled({program.arguments})", "<call>", "eval")

    def outcome(self, number):
        from guards_fuzz import outcome_of
        if number is not None:
            try:
                exec(CHANGES[number], self.scope)
            except Exception:
                pass  # there is nothing to change any more, on either side
        self.scope["x"] = self.scope["torch"].tensor([1.0, 2.0])
        names = [self.scope[name] for name in ("x", "o", "d")]
        return outcome_of(lambda: eval(self.call, self.scope), names)
