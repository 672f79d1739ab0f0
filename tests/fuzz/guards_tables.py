"""The tables of guards_fuzz.py: the world of a program, the values that it is called with, the places that hold them,
and what it does with them.

Each row is Python text. `x` is a tensor of two floats, `s` and `t` are values, `r` is the result.
"""
# Both sides of a comparison have a world of their own, so that neither sees what the other wrote.
WORLD = """
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, types
import numpy as np
import torch
from torch import nn
class Str(str): pass
class Int(int): pass
class Float(float): pass
class Bytes(bytes): pass
class List(list): pass
class Tuple(tuple): pass
class Dict(dict): pass
class Set(set): pass
class Shown(str):
    def __format__(self, spec): return 'formatted' + spec
    def __str__(self): return 'shown'
class Counted(int):
    def __eq__(self, other): return True
    def __hash__(self): return 5
    def __index__(self): return 1
    def __bool__(self): return False
class Doubled(list):
    def __iter__(self): return iter([*super().__iter__()] * 2)
class Missing(dict):
    def __missing__(self, key): return 'missing'
class Number(enum.IntEnum): A = 2; B = 5; ALIAS = 2
class Name(enum.Enum): A = 2; B = 'ab'
class Word(str, enum.Enum): A = 'ab'
class Bits(enum.Flag): A = 1; B = 2
Pair = collections.namedtuple('Pair', 'p q')
@dataclasses.dataclass
class Data: a: object = 1
@dataclasses.dataclass(frozen=True, order=True)
class Frozen: a: object = 1
class Plain:
    a = 1
    def __init__(self): self.b = 2
    def m(self): return self.b
class Child(Plain): a = 3
class Odd(Plain):
    a = 3
    __hash__ = None
    def __len__(self): return 2
    def __getitem__(self, i):
        if i > 1: raise IndexError
        return i * 5
    def __eq__(self, other): return True
    def __call__(self, *args): return 'called'
    def __enter__(self): return 9
    def __exit__(self, *error): return True
    def __index__(self): return 1
    def __add__(self, other): return 'add'
    def __radd__(self, other): return 'radd'
    def __bool__(self): return False
    def __contains__(self, key): return True
    def keys(self): return [1]
class Same:
    def __eq__(self, other): return isinstance(other, Same)
    def __hash__(self): return 5
    def __format__(self, spec): return 'same' + spec
    def __iter__(self): return iter((1, 2))
    def __lt__(self, other): return True
class Refuses:
    def __bool__(self): raise TypeError('no truth')
    def __eq__(self, other): raise ValueError('not compared')
    def __hash__(self): raise KeyError('not hashed')
    def __len__(self): return -1
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        return name
class Slotted:
    __slots__ = 'a', 'held'
    def __init__(self): self.a = 4
class Meta(type):
    def __len__(cls): return 3
    def __iter__(cls): return iter('pq')
    def __call__(cls, *args): return 'made'
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
class Made(metaclass=Meta): a = 6
class Sub(torch.Tensor): pass
class Function(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass(): return func(*args, **(kwargs or {}))
class Net(nn.Module):
    a = 7
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
    def forward(self, x): return x * self.w
def fn(*args): return 'fn'
def other(*args, **kwargs): return 'other'
class Holder: pass
class Slots: __slots__ = 'held',
class Asked:
    @property
    def held(self): return self.hidden
def given(s=None): return s
def named(*, s=None): return s
def items(s):
    def g(): yield from s
    return list(g())
holder, holders, slots, asked, net, row = Holder(), Holder(), Slots(), Asked(), Net(), [0, None]
space, table, HELD = types.ModuleType('space'), {}, None
"""

VALUES = """
'ab' ; Str('ab') ; Shown('ab') ; '' ; 'a' ; b'ab' ; Bytes(b'ab') ; bytearray(b'ab') ; Word.A ; Name.B ; 5 ; Int(5) ;
Counted(5) ; True ; False ; 0 ; 1 ; 2 ; -1 ; Number.A ; Number.B ; Name.A ; Bits.A ; Bits.A ; Bits.B ; 2.5 ;
Float(2.5) ; 0.0 ; -0.0 ; 1.0 ; 5.0 ; float('nan') ; 1j ; 1 + 0j ; None ; ... ; NotImplemented ; (1, 2) ;
Tuple((1, 2)) ; Pair(1, 2) ; (1,) ; () ; (1.0, 2) ; torch.Size([1, 2]) ; ('ab', 5) ; ((1, 2), (3, 4)) ; [1, 2] ;
List([1, 2]) ; Doubled([1, 2]) ; [] ; [1.0, True] ; [[1, 2], [3, 4]] ; collections.deque([1, 2]) ; {'a': 1} ;
Dict(a=1) ; Missing(a=1) ; {} ; {1: 2, 'a': 5} ; collections.OrderedDict(a=1) ; types.MappingProxyType({'a': 1}) ;
collections.defaultdict(list, a=1) ; collections.Counter('ab') ; {'a': 1, 'b': 2} ; {'b': 2, 'a': 1} ; {1, 2} ;
Set([1, 2]) ; frozenset([1, 2]) ; set() ; range(2) ; range(1, 3) ; slice(1, 2) ; slice(None) ; memoryview(b'ab') ;
Plain() ; Child() ; Odd() ; Same() ; Refuses() ; Slotted() ; Data() ; Data(2) ; Frozen() ;
types.SimpleNamespace(a=4) ; fn ; other ; len ; Plain ; Odd ; Made ; int ; bool ; str ; list ; dict ; tuple ;
ValueError ; ValueError('q') ; KeyError('q') ; StopIteration(3) ; functools.partial(fn, 1) ; Plain().m ; 'ab'.upper ;
math ; iter([1, 2]) ; (q for q in (1, 2)) ; torch.float32 ; torch.int64 ; torch.device('cpu') ; torch.strided ;
torch.Generator() ; torch.ones(2) ; torch.ones(2, requires_grad=True) ; nn.Parameter(torch.ones(2)) ;
nn.Buffer(torch.ones(2)) ; torch.ones(2).as_subclass(Sub) ; torch.ones(2).as_subclass(Function) ;
torch.ones(2, dtype=torch.int64) ; torch.ones(2, dtype=torch.float64) ; torch.tensor([True, False]) ;
torch.tensor([1, 0]) ; torch.tensor(5) ; torch.tensor(5.0) ; torch.tensor(True) ; torch.tensor(1j) ; torch.ones(1) ;
torch.ones(2, 2) ; torch.ones(0) ; torch.ones(4)[::2] ; nn.Parameter(torch.tensor(1.0)) ; Net() ;
nn.Linear(2, 2, bias=False).requires_grad_(False) ; nn.ModuleList([nn.Identity()]) ; nn.ReLU() ; np.float64(2.5) ;
np.float32(1) ; np.int64(5) ; np.bool_(True) ; np.ones(2)
"""

# How a function reads `s`: its head, what puts the value `v` there, and the arguments of a call.
PLACES = {
    "an argument": ("def f(x, t, s):", "", "x, t, v"),
    "a positional of *args": ("def f(x, t, *args):\n    s = args[0]", "", "x, t, v"),
    "a keyword of **kwargs": ("def f(x, t, **kwargs):\n    s = kwargs['s']", "", "x, t, s=v"),
    "an item of a tuple": ("def f(x, t, h):\n    s = h[0]", "", "x, t, (v, 1)"),
    "an unpacked item": ("def f(x, t, h):\n    s, _ = h", "", "x, t, [v, 1]"),
    "a field of a namedtuple": ("def f(x, t, h):\n    s = h.q", "", "x, t, Pair(1, v)"),
    "an item of a list": ("def f(x, t, h):\n    s = h[1]", "row[1] = v", "x, t, row"),
    "a value of a dict": ("def f(x, t, h):\n    s = h['s']", "table['s'] = v", "x, t, table"),
    "a value of a global dict": ("def f(x, t):\n    s = table.get('s')", "table['s'] = v", "x, t"),
    "an attribute": ("def f(x, t, h):\n    s = h.held", "holder.held = v", "x, t, holder"),
    "a slot": ("def f(x, t, h):\n    s = h.held", "slots.held = v", "x, t, slots"),
    "a property": ("def f(x, t, h):\n    s = h.held", "asked.hidden = v", "x, t, asked"),
    "a class attribute": ("def f(x, t):\n    s = Holder.kept", "Holder.kept = v", "x, t"),
    "an attribute by getattr": ("def f(x, t, h):\n    s = getattr(h, 'maybe', None)", "holders.maybe = v",
                                "x, t, holders"),
    "an attribute of a module": ("def f(x, t):\n    s = space.held", "space.held = v", "x, t"),
    "an attribute of an nn.Module": ("def f(x, t, h):\n    s = h.held",
                                     "hasattr(net, 'held') and delattr(net, 'held'); net.held = v", "x, t, net"),
    "a global": ("def f(x, t):\n    s = HELD", "HELD = v", "x, t"),
    "a default": ("def f(x, t, s=None):", "f.__defaults__ = (v,)", "x, t"),
    "a default of a callee": ("def f(x, t):\n    s = given()", "given.__defaults__ = (v,)", "x, t"),
    "a keyword default of a callee": ("def f(x, t):\n    s = named()", "named.__kwdefaults__ = {'s': v}", "x, t"),
    "a cell": ("def f(x, t):\n    s = cell", "cell_put(v)", "x, t"),
    "an argument of a partial": ("def f(x, t, p):\n    s = p()", "", "x, t, functools.partial(given, v)"),
}

ONE = """
(lambda *a: a)(*s) ; (lambda *a, **k: (a, k))(**s) ; (lambda *a: a)(*s, 1) ; (lambda a, *b: (a, b))(*s) ; f'{s}' ;
f'{s!r}' ; f'{s!s}' ; f'{s:>4}' ; f'{s}{s}' ; f'a{s}' ; '%s' % s ; '%s' % (s,) ; '{}'.format(s) ; '{0:>5}'.format(s) ;
format(s) ; format(s, '') ; str(s) ; repr(s) ; ascii(s) ; tuple(s) ; list(s) ; set(s) ; frozenset(s) ; dict(s) ;
iter(s) is s ; next(iter(s)) ; sorted(s) ; sum(s) ; sum(s, ()) ; max(s) ; len(s) ; bool(s) ; int(s) ; float(s) ;
abs(s) ; -s ; +s ; ~s ; not s ; s or 7 ; s and 7 ; (s,) + (1,) ; s + s ; s + 1 ; 1 + s ; s * 2 ; 2 * s ; s - 1 ;
s / 2 ; s // 1 ; s % 2 ; s ** 2 ; s | s ; s & s ; s ^ s ; s << 1 ; s @ s ; s == 2 ; s == 5 ; 2 == s ; s != 'ab' ;
s == s ; s is None ; s is True ; s < 3 ; 3 >= s ; s < s ; s in (1, 2, 'ab') ; s in [2.5] ; s in {5, 2} ;
s in {'a': 1, 5: 2} ; 1 in s ; 'a' in s ; {5: 'five', 2.5: 'f', True: 't', 'ab': 's', (1, 2): 'tup'}.get(s) ; {s: 1} ;
{s, 2} ; [s] ; (s, s) ; [*s] ; (*s,) ; {*s} ; {**s} ; [1, 2, 3][s] ; (1, 2, 3)[s] ; 'abc'[s] ; range(9)[s] ; s[0] ;
s[-1] ; s[0:1] ; s[:] ; s['a'] ; s.a ; s.b ; getattr(s, 'a', 0) ; getattr(s, 'real', 0) ; hasattr(s, 'append') ;
hasattr(s, 'shape') ; s.upper() ; s.count('a') ; s.index(1) ; s.keys() ; list(s.items()) ; s.get('a') ; s.copy() ;
type(s) ; s.__class__ ; type(s).__name__ ; isinstance(s, int) ; isinstance(s, (str, tuple)) ; isinstance(s, bool) ;
isinstance(s, torch.Tensor) ; isinstance(s, nn.Parameter) ; isinstance(s, torch.FloatTensor) ;
isinstance(s, collections.abc.Mapping) ; isinstance(s, collections.abc.Hashable) ; callable(s) ; s() ; s(1) ; s(x) ;
id(s) == id(s) ; range(s) ; list(range(s)) ; [0] * s ; 'ab' * s ; hash(s) == hash(s) ; hash(s) is None ;
s.partition('a') ; s.format() ; s.strip() ; s.split() ; s.join(['x', 'y']) ; s.replace('a', 'b') ; s.zfill(1) ;
s.lower() ; s.title() ; s.encode() ; s.rpartition('b') ; torch.zeros(s) ; torch.full((2,), s) ; torch.tensor(s) ;
torch.as_tensor(s) ; torch.Size(s) ; x + s ; s + x ; x * s ; x - s ; s / x ; x[s] ; x.view(s) ; x.reshape(s, -1) ;
x.expand(s) ; x.sum(s) ; x.to(s) ; x.add(s, alpha=2) ; x.clamp(s) ; x.clamp(max=s) ; torch.where(x > 0, x, s) ;
torch.add(x, s) ; torch.sum(x, s) ; torch.softmax(x, 0, s) ; torch.mul(x, s) ; torch.max(x, s) ; torch.cat(s) ;
torch.stack([x, x], s) ; x == s ; x < s ; x is s ; torch.is_tensor(s) ; x @ s ; x // s ; x % s ; x ** s ; s ** x ;
x & s ; -x + s ; x.type_as(s) ; x.expand_as(s) ; x.copy_(s) ; x.set_(s) ; x.data + s ; copy.copy(s) ;
copy.deepcopy(s) ; operator.index(s) ; math.floor(s) ; math.sqrt(s) ; round(s) ; divmod(s, 2) ; pow(s, 2) ;
min(s, 3) ; max(s, 1) ; any(s) ; all(s) ; list(zip(s, s)) ; list(enumerate(s)) ; list(reversed(s)) ;
list(map(str, s)) ; list(filter(None, s)) ; list(itertools.chain(s, [1])) ; list(itertools.repeat(s, 2)) ;
functools.reduce(operator.add, s) ; functools.partial(fn, s)() ; collections.deque(s) ; collections.OrderedDict(s) ;
dict.fromkeys(s) ; dict(a=s) ; dict(s, b=1) ; slice(s) ; slice(s).stop ; x[s:] ; x[:s] ; [1, 2, 3][s:] ;
[1, 2, 3].index(s) ; [1, 2, 3].pop(s) ; [1, 2].insert(s, 1) ; (lambda l: (l.extend(s), l))([0]) ;
(lambda l: (l.append(s), l))([0]) ; (lambda l: (l.__iadd__(s), l))([0]) ; (lambda d: (d.update(s), d))({}) ;
(lambda d: (d.setdefault(s, 1), d))({}) ; (lambda d: d | s)({}) ; (lambda d: (d.add(s), d))(set()) ;
(lambda d: (d.update(s), d))(set()) ; '-'.join(s) ; 'ab'.join(['x', s]) ; 'aabb'.split(s) ; 'ab'.startswith(s) ;
'ab'.find(s) ; 'ab'.replace(s, 'x') ; 'ab'.center(s) ; s.__eq__(5) ; s.__len__() ; s.__bool__() ; s.__hash__ is None ;
s.numerator ; s.conjugate() ; s.is_integer() ; complex(s) ; bytes(s) ; type(s)(s) ; type(s) is str ;
s.__class__ is tuple ; isinstance(s, type) ; issubclass(s, int) ; contextlib.nullcontext(s).__enter__() ;
[q for q in s] ; {q: 1 for q in s} ; (lambda a: [a, *a])(s) ; (s if s else 0) ; (1 if s is ... else 2) ;
x.new_tensor(s) ; x.type(s) ; x.size(s) ; x.transpose(s, 0) ; x.flip(s) ; x.permute(s) ; torch.arange(s) ;
torch.ones(2, dtype=s) ; torch.zeros_like(x, dtype=s) ; torch.nn.functional.pad(x, s) ;
torch.nn.functional.dropout(x, 0.0, s) ; x.requires_grad == s ; x.dtype == s ; x.shape == s ; x.ndim == s ;
s == x.shape ; vars(s) ; dir(s)[:0] ; s.__dict__ ; setattr(Plain, 'zz', s) ; setattr(x, 'tag', s) or x.tag ;
setattr(s, 'a', 9) or s.a ; ord(s) ; chr(s) ; hex(s) ; bin(s) ; sum([s]) ; sum([1], s) ; max([s], default=1) ;
sorted([s]) ; list(s.values()) ; divmod(7, s) ; round(2.567, s) ; pow(2, s) ; math.prod(s) ; math.hypot(*s) ;
math.isnan(s) ; math.isclose(s, 5) ; operator.truth(s) ; operator.is_(s, None) ; operator.contains(s, 1) ;
operator.not_(s) ; operator.getitem(s, 0) ; operator.itemgetter(0)(s) ; operator.attrgetter('a')(s) ;
operator.methodcaller('upper')(s) ; torch.equal(x, s) ; torch.allclose(x, s) ; torch.broadcast_shapes(s, (2,)) ;
torch.promote_types(s, torch.float32) ; torch.is_floating_point(s) ; torch.result_type(x, s) ; torch.numel(s) ;
x.split(s) ; x.chunk(s) ; x.repeat(s) ; x.tile(s) ; x.unsqueeze(s) ; x.narrow(0, 0, s) ; x.masked_fill(x > 0, s) ;
x.index_select(0, s) ; x.pow(s) ; x.lerp(x, s) ; torch.addcmul(x, x, x, value=s) ; torch.linspace(0, 1, s) ;
torch.eye(s) ; torch.outer(x, s) ; torch.einsum('i,i->', x, s) ; s.shape ; s.dtype ; s.size() ; s.dim() ;
s.requires_grad ; s.is_leaf ; s.item() ; s.tolist() ; s.sum() ; s.t() ; s.T ; s.detach() ; s.clone() ; s.float() ;
s.data ; s.numel() ; s.device ; s.grad ; s.view(-1) ; s.is_contiguous() ; s.stride() ; s.unsqueeze(0) ; s.abs() ;
s.relu() ; s.new_zeros(2) ; s.to(torch.float64) ; s.max() ; torch.relu(s) ; torch.sin(s) ;
nn.functional.linear(x, s) ; s.weight ; s.forward(x) ; list(s.children()) ; list(s.parameters()) ; s.state_dict() ;
s.training ; s.eval() ; s.w ; len(list(s.named_modules())) ; s._fields ; s._asdict() ; s._replace(p=5) ; s.name ;
s.value ; dataclasses.is_dataclass(s) ; dataclasses.asdict(s) ; dataclasses.replace(s, a=3) ;
dataclasses.fields(s)[0].name ; s.astype(int) ; s.mean() ; s.dtype == 'float64' ; np.asarray(s) ; np.float64(s) ;
np.add(s, 1) ; s.popleft() ; s.pop() ; s.most_common() ; s.elements() ; s.default_factory ; s.move_to_end('a') ;
s.start ; s.stop ; s.step ; s.args ; s.func ; s.__name__ ; s.__doc__ is None ; s.__module__ ; s.__self__ ; s.m() ;
s.held ; s.real ; s.imag ; s.bit_length() ; s.hex() ; Number(s) ; Name(s) ; Bits.A in s ; s in Number.__members__ ;
Name['A'] is s ; types.SimpleNamespace(a=s).a ; Data(s) ; Frozen(s) == Frozen(s) ; hash(Frozen(s)) is None ;
Pair(s, s)._replace(p=1) ; isinstance(s, Number) ; s is Number.A ; str.upper(s) ; list.__len__(s) ; dict.get(s, 'a') ;
int.__add__(s, 1) ; tuple.index(s, 1) ; float.is_integer(s) ; torch.Tensor.add(s, 1) ; type(s).__mro__ ;
type(type(s)) ; s.__len__ ; super(type(s), s).__hash__ is None
"""

TWO = """
s + t ; s - t ; s * t ; s / t ; s // t ; s % t ; divmod(s, t) ; s << t ; s >> t ; s & t ; s | t ; s ^ t ; s @ t ;
s == t ; s != t ; s < t ; s <= t ; s > t ; s >= t ; s is t ; s in t ; s in (t,) ; s in [1, t] ; s in {t} ;
{s: 1}.get(t) ; {s, t} ; {s: 1, t: 2} ; s[t] ; s or t ; s and t ; (s if t else x) ; max(s, t) ; min(s, t) ;
[s, t].index(t) ; (s, t).count(s) ; sorted([s, t]) ; (s, 1) == (t, 1) ; [s] < [t] ; {'k': s} == {'k': t} ;
isinstance(s, t) ; issubclass(s, t) ; s(t) ; t(s, 1) ; getattr(s, t) ; hasattr(s, t) ; getattr(s, 'a', t) ;
s.get('b', t) ; s.get(t) ; dict(s, k=t) ; f'{s}{t}' ; f'{s:{t}}' ; '%s %s' % (s, t) ; '{} {}'.format(s, t) ;
s.join(t) ; s.split(t) ; s.startswith(t) ; s.replace(t, 'q') ; s.count(t) ; [*s, *t] ; (*s, t) ; {**s, **t} ;
s.__class__ is t.__class__ ; type(s) == type(t) ; zip(s, t).__class__ ; list(zip(s, t)) ; list(map(s, [t])) ;
list(map(operator.eq, s, t)) ; sum([s], t) ; range(s, t) ; slice(s, t) ; x[s:t] ; [1, 2, 3][s:t] ; round(s, t) ;
pow(s, t) ; math.isclose(s, t) ; math.atan2(s, t) ; torch.add(s, t) ; torch.where(x > 1, s, t) ; torch.stack([s, t]) ;
torch.cat([s, t]) ; torch.full((s,), t) ; torch.mul(s, t) ; torch.equal(s, t) ; torch.maximum(s, t) ; x.clamp(s, t) ;
x + s + t ; x * s - t ; (x + s) * t ; torch.lerp(x, s, t) ; torch.addcmul(x, s, t) ; torch.arange(s, t) ;
x.view(s, t) ; x.sum(s, t) ; x.to(s, t) ; x.transpose(s, t) ; operator.eq(s, t) ; functools.partial(s, t)() ;
Data(s) == Data(t) ; Frozen(s) < Frozen(t) ; Pair(s, t) == (s, t) ; contextlib.ExitStack().enter_context(s) ;
copy.copy([s, t]) ; dict.fromkeys([s], t) ; [s].__contains__(t) ; s.__eq__(t) ; s.__add__(t) ; s.index(t) ;
s.append(t) ; s.update(t) ; s.add(t) ; s.extend(t) ; s.setdefault('z', t) ; s.insert(0, t) ; setattr(s, 'a', t) ;
s.__setitem__(0, t) ; nn.functional.linear(s, t)
"""

STATEMENTS = """
a, b = s; r = (a, b)
a, *b = s; r = (a, b)
(a, b), *c = s; r = (a, b, c)
r = []$for q in s: r.append(q)
r = []$for a, b in s: r.append((b, a))
r = []$for q, w in enumerate(s): r.append((q, w))
r = []$for a, b in s.items(): r.append((b, a))
r = 0$for q in s:$    r = q$    if q == t: break$else: r = 'else'
r = 0$while s and r < 5: r += 1; s = s[1:]
r = 0$while s and r < 5: r += 1; s -= 1
r = s; r += s
r = s; r += t
r = s; r *= 2
r = s; r -= t
r = s; r |= t
r = s; r &= t
r = s; r @= t
r = s; r **= 2
r = s; r //= t
r = s; r <<= 1
r = [0]; r += s
r = {}; r |= s
r = (0,); r += s
r = [1, 2, 3]; r[s] = 5
r = [1, 2, 3]; r[:2] = s
r = [1, 2, 3]; r[s:] = t
r = [1, 2, 3]; del r[s]
r = {}; r[s] = 1
r = {}; r[s] = 1; r[t] = 2
r = {5: 1, 'ab': 2, (1, 2): 3}; del r[s]
r = s; s[0] = 9
r = s; s['a'] = t
r = s; s.a = t
r = s; del s[0]
r = s; del s['a']
r = s; del s.b
r = s; s[0] += 1
r = s; s['a'] += 1
r = s; s.a += 1
r = s; s.b = s.b + 1
with s as q: r = q; raise ValueError
with contextlib.suppress(s): r = 1; raise ValueError('w')$r = 2
with contextlib.nullcontext(s) as q: r = q
with torch.set_grad_enabled(s): r = (x * 2).requires_grad
with torch.autocast('cpu', enabled=s): r = x @ x
try: raise s$except Exception as e: r = repr(e)
try: raise ValueError('w')$except s as e: r = 'caught'
try: raise KeyError('w')$except (s, t): r = 'caught'$except Exception: r = 'other'
try: raise ValueError from s$except ValueError as e: r = repr(e.__cause__)
try: raise s from t$except Exception as e: r = repr(e.__cause__)
try: raise ValueError(s)$except ValueError as e: r = (e.args, str(e))
try: s.a$except AttributeError as e: r = (e.name, str(e))$else: r = 'has'
try: r = s[t]$except (KeyError, IndexError) as e: r = repr(e)$finally: y = s
try: r = {'a': 1}[s]$except KeyError as e: r = e.args
try: r = next(s)$except StopIteration as e: r = e.value
try: r = int(s)$except ValueError as e: r = str(e)$except TypeError: r = 'type'
assert s; r = 1
assert s == t, s$r = 1
match s:$    case 5: r = 'five'$    case str(): r = 'str'$    case [a, b]: r = (a, b)$    case {'a': k}: r = k
  $    case None: r = 'none'$    case float(): r = 'fl'$    case Plain(a=3): r = 'o'$    case _: r = 'other'
match s:$    case True: r = 'T'$    case 2 | 2.5: r = 'n'$    case 'ab': r = 's'$    case (1, *z): r = z
  $    case int(v): r = v$    case tuple(): r = 'tup'$    case _: r = s
match s:$    case Number.A: r = 'A'$    case Name.B: r = 'B'$    case Pair(p, q): r = q$    case Data(a): r = a
  $    case {'a': 1, **w}: r = w$    case bool(): r = 'b'$    case _: r = 0
match s, t:$    case (int(), int()): r = 1$    case (str() | bytes(), _): r = 2$    case (a, b) if a is b: r = 3
  $    case ([*q], w): r = q, w$    case (_, {}): r = 4$    case _: r = 5
def g(q=s, *, k=s): return q, k$r = g()
def g(*a, **k): return a, k$r = g(*s, **t)
def g(q: s): return q$r = g.__annotations__
def g():$    yield s$    yield from s$r = list(g())
def g():$    try: q = yield 1$    except Exception as e: yield repr(e)$w = g(); next(w); r = w.throw(s)
def g():$    q = yield s$    yield q$w = g(); next(w); r = w.send(t)
class K(s): pass$r = K.__mro__[1].__name__
class K:$    z = s$    def m(self): return self.z$r = K().z
class K:$    def __len__(self): return s$r = len(K())
class K:$    def __bool__(self): return s$r = 1 if K() else 2
class K:$    def __eq__(self, o): return s$r = K() == 1, K() in [1], K() != 1
class K:$    def __iter__(self): return s$r = list(K())
class K:$    def __hash__(self): return s$r = {K(): 1} != 0
class K:$    def __index__(self): return s$r = [1, 2, 3][K()]
class K:$    def __contains__(self, q): return s$r = 1 in K()
class K:$    def __getattr__(self, n): return s$r = K().q
class K:$    def __str__(self): return s$r = f'{K()}'
class K:$    def __call__(self, *a): return s$r = K()(1)
class K:$    def __init__(self): self.__class__ = s$r = K()
x[s] = 0; r = x
x[0] = s; r = x
x[s] = t; r = x
x[:s] = 0; r = x
x.add_(s); r = x
x.fill_(s); r = x
x *= s; r = x
x += s; r = x
r = x; r -= s
x.data = s; r = x
x.grad = s; r = x.grad
r = items(s)
y = s if isinstance(s, tuple) else (s,); r = y
y = s if type(s) is tuple else tuple([s]); r = y
y = list(s) if isinstance(s, (list, tuple)) else s; r = y
if s is None: s = 1$r = s
if s: r = x + 1$else: r = x - 1
if not s: r = 1$elif s == t: r = 2$else: r = 3
if isinstance(s, torch.Tensor) and s.dim(): r = s + 1$else: r = x
if s == 1: r = x * 2$elif s == 5: r = x * 3$else: r = x
r = x * s if isinstance(s, float) else x * 2
r = torch.no_grad()(lambda: s)()
o = Plain(); o.v = s; r = o.v; del o.v
global GG$GG = s; r = GG
r = [s]; r[0] = r[0]
r = lambda: s; r = r()
r = next(q for q in [s])
r = super(s, s) and 0
import importlib$r = importlib.import_module(s).__name__
r = [q * w for q in s for w in t]
r = {q: w for q, w in zip(s, t)}
r = s if s is not t else None
r = (y := s) == t, y
r = [s, t, s]; r.sort()
r = [s, t]; r.remove(t)
r = collections.deque(maxlen=s); r.append(1); r.append(2)
r = collections.defaultdict(s); r['k']
r = collections.ChainMap(s, {'z': 1})['z']
r = functools.lru_cache(lambda q: q)(s)
r = Net(); r.w = s
r = net(s)
r = nn.Sequential(nn.Identity(), nn.ReLU())(s)
r = nn.Linear(2, 2).to(s).weight.dtype
"""


def split(rows):
    return [row.strip() for row in rows.replace("\n", " ").split(" ; ")]


def statements():
    return [row.replace("$", "\n") for row in STATEMENTS.strip().replace("\n  ", "").splitlines()]
