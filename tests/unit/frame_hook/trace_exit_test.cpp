// tests/unit/frame_hook/trace_exit_test.cpp — where traces stop, what their exits hold, which guards and ops they add.
#include "fake_frontend.h"

#include "frame_hook/trace/machine/opcode_handlers.h"

namespace framejit::frame_hook::fake {
namespace {

using Lines = std::vector<std::string>;

TEST(TraceExit, BreakAtTopLevelKeepsTheStateBeforeTheInstruction) {
  const Trial t = trial("def f(x):\n  y = x + 1\n  if y:\n    return 1\n  return 2", kX);
  EXPECT_EQ(t.reason, "data_dependent_jump");
  EXPECT_EQ(t.where, "program.py:4 f");
  EXPECT_EQ(t.exit_lines, (Lines{"f:3"}));
  EXPECT_EQ(t.ops, (Lines{"add(x, 1)"}));
  ASSERT_EQ(t.trace.exit.size(), 1u);
  const SymbolicFrame& frame = *t.trace.exit[0].frame;
  EXPECT_EQ(text_of(frame.locals[1]), "add(x, 1)");
  ASSERT_EQ(frame.stack.size(), 1u);
  EXPECT_EQ(text_of(frame.stack[0]), "add(x, 1)");
}

TEST(TraceExit, CalleeIsResumedInPlace) {
  const Trial t = trial("def g(x):\n  y = x * 2\n  torch.nonzero(y)\n  return y\ndef f(x):\n  return g(x + 1) + 3", kX);
  EXPECT_EQ(t.reason, "data_dependent_size");
  EXPECT_EQ(t.exit_lines, (Lines{"f:6", "g:3"}));
  EXPECT_EQ(t.trace.exit[0].frame->on_return, OnReturn::push);
  EXPECT_TRUE(t.trace.exit[0].frame->stack.empty());
  EXPECT_EQ(t.ops, (Lines{"add(x, 1)", "mul(add(x, 1), 2)"}));
}

TEST(TraceExit, CalleeOfABuiltinIsNotResumedInPlace) {
  const Trial t =
      trial("def g(x):\n  torch.nonzero(x)\n  return x\ndef f(x):\n  y = x + 1\n  return sorted([x], key=g)", kX);
  EXPECT_EQ(t.exit_lines, (Lines{"f:6"}));
  EXPECT_EQ(t.ops, (Lines{"add(x, 1)"}));
}

TEST(TraceExit, HalfRunGeneratorMovesTheStopToItsMaking) {
  const Trial t = trial(
      "def g(x):\n  yield x\n  yield x + 1\ndef f(x):\n  it = g(x)\n  a = next(it)\n  torch.nonzero(a)\n  return "
      "next(it)",
      kX);
  EXPECT_EQ(t.reason, "data_dependent_size");
  EXPECT_EQ(t.where, "program.py:8 f");
  EXPECT_EQ(t.exit_lines, (Lines{"f:5"}));
}

// A weak reference is a graph break after a write. Only writes of the same attempt count.
TEST(TraceExit, EachAttemptCountsItsOwnWrites) {
  const Trial t = trial(
      "import weakref\nclass A:\n  n = 1\nkept = A()\ndef f(x, d, r):\n  n = r().n\n  d['k'] = n\n  "
      "torch.nonzero(x)\n  return x + n",
      "torch.tensor('x', 2, 3), {}, weakref.ref(kept)");
  EXPECT_EQ(t.reason, "data_dependent_size");
  EXPECT_EQ(t.exit_lines, (Lines{"f:8"}));
}

TEST(TraceExit, BreakInsideAGeneratorStopsAtItsConsumer) {
  const Trial t = trial("def g(x):\n  torch.nonzero(x)\n  yield x\ndef f(x):\n  y = x + 1\n  return list(g(y))", kX);
  EXPECT_EQ(t.exit_lines, (Lines{"f:6"}));
}

TEST(TraceExit, BreakInAHandlerStopsAtTheRaise) {
  const Trial t = trial(
      "def f(x):\n  y = x + 1\n  try:\n    raise ValueError\n  except ValueError:\n    torch.nonzero(y)\n  return y",
      kX);
  EXPECT_EQ(t.where, "program.py:7 f");
  EXPECT_EQ(t.exit_lines, (Lines{"f:4"}));
}

TEST(TraceExit, UncaughtExceptionStopsBeforeTheRaise) {
  const Trial t = trial(
      "def g(v):\n  raise ValueError(v)\ndef f(x):\n  y = x + 1\n  try:\n    g(2)\n  finally:\n    z = y * 2\n  return "
      "z",
      kX);
  EXPECT_EQ(t.reason, "exception_raised");
  EXPECT_EQ(t.detail, "ValueError, which the traced code does not catch,");
  EXPECT_EQ(t.exit_lines, (Lines{"f:6", "g:2"}));
  EXPECT_EQ(t.ops, (Lines{"add(x, 1)"}));
}

TEST(TraceExit, ErrorOfARecordedCallDropsItsOps) {
  const Trial t = trial("def f(x):\n  y = x + 1\n  return torch.fail(y)", kX);
  EXPECT_EQ(t.reason, "exception_raised");
  EXPECT_EQ(t.ops, (Lines{"add(x, 1)"}));
  expect_whole("def f(x):\n  try:\n    return torch.fail(x)\n  except ValueError as e:\n    return e.args", kX);
}

TEST(TraceExit, GeneratorsAndLimits) {
  EXPECT_EQ(trial("def f(x):\n  yield x", kX).reason, "generator_frame");
  EXPECT_EQ(trial("def g(n):\n  return g(n + 1)\ndef f(x):\n  return g(0)", kX).reason, "recursion_limit");
  TraceOptions options;
  options.max_steps = 5000;
  const Trial t = trial("def f(x):\n  while True:\n    x = x\n  return x", kX, options);
  EXPECT_EQ(t.reason, "trace_too_long");
  EXPECT_EQ(t.exit_lines.size(), 1u);
}

TEST(TraceExit, CtrlCStopsTracingAndStaysPending) {
  frontend();
  PyRun_SimpleString("import signal\nseen = []\nold = signal.signal(signal.SIGINT, lambda *a: seen.append(1))");
  const Trial t =
      trial("def f(x):\n  x = torch.interrupt(x)\n  i = 0\n  while i < 100000:\n    i += 1\n  return x", kX);
  EXPECT_EQ(t.reason, "interrupted");
  EXPECT_LT(t.trace.steps, 5000u);
  EXPECT_EQ(PyRun_SimpleString("assert seen == [1], seen\nsignal.signal(signal.SIGINT, old)"), 0);
}

TEST(TraceExit, UnsupportedOpcodeIsNamed) {
  const Trial t =
      trial("def f(x):\n  y = x + 1\n  try:\n    raise ValueError\n  except* ValueError: pass\n  return y", kX);
  EXPECT_EQ(t.reason, "unsupported_opcode");
  EXPECT_EQ(t.detail, "check_eg_match");
}

// Opcodes that are left out on purpose; a new neutral opcode must be handled or listed here.
TEST(TraceExit, EveryOpcodeIsHandledOrListed) {
  const Lines left = {"load_classderef",
                      "load_from_dict_or_deref",
                      "load_from_dict_or_globals",
                      "load_locals",
                      "load_name",
                      "store_name",
                      "delete_name",
                      "cleanup_throw",
                      "async_gen_wrap",
                      "get_awaitable",
                      "get_aiter",
                      "get_anext",
                      "end_async_for",
                      "before_async_with",
                      "check_eg_match",
                      "prep_reraise_star",
                      "import_star",
                      "setup_annotations",
                      "print_expr",
                      "typing_intrinsic_1",
                      "typing_intrinsic_2",
                      "unknown",
                      "never"};
  Lines found;
  for (int op = 0; op < static_cast<int>(Op::kCount); ++op)
    if (!handler_of(static_cast<Op>(op))) found.push_back(name_of(static_cast<Op>(op)));
  EXPECT_EQ(found, left);
}

TEST(TraceGuards, OnlyWhatWasUsed) {
  const Trial t = trial("def f(x, n, unused):\n  return x + n", std::string(kX) + ", 3, 4");
  EXPECT_TRUE(t.has_guard("tensor L[x] f32[2, 3]") || t.has_guard("tensor L['x'] f32[2, 3]")) << t.guards[0];
  bool n = false, unused = false;
  for (const std::string& g : t.guards) {
    n = n || g.find("'n'") != std::string::npos;
    unused = unused || g.find("unused") != std::string::npos;
  }
  EXPECT_TRUE(n);
  EXPECT_FALSE(unused);
}

TEST(TraceGuards, OneObjectUnderTwoSources) {
  const Trial t = trial("L = [1]\ndef f(a, b):\n  return a is b, len(a), len(b)", "L, L");
  EXPECT_EQ(t.returned, "(True, 1, 1)");
  bool same = false;
  for (const std::string& g : t.guards) same = same || g.rfind("same ", 0) == 0;
  EXPECT_TRUE(same);
  const Trial u = trial("def f(a, b):\n  return a is b", "[1], [1]");
  EXPECT_EQ(u.returned, "False");
  bool distinct = false;
  for (const std::string& g : u.guards) distinct = distinct || g.rfind("distinct ", 0) == 0;
  EXPECT_TRUE(distinct);
}

TEST(TraceSizes, DynamicSourcesBecomeSymbols) {
  TraceOptions options;
  options.hints.dynamic_sources = {"L['n']", "L['x'].size(0)"};
  const Trial t = trial("def f(x, n):\n  return x + n, x.size(0), x.size(1), n + 1, n is None",
                        "torch.tensor('x', 5, 3), 7", options);
  EXPECT_EQ(t.reason, "") << t.detail;
  EXPECT_EQ(t.returned, "(add(x, s0), s1, 3, s0 + 1, False)");
  TraceOptions never = options;
  never.hints.dynamic_never = true;
  EXPECT_EQ(trial("def f(n):\n  return n + 1", "7", never).returned, "8");
  TraceOptions all;
  all.hints.dynamic_all = true;
  EXPECT_EQ(trial("K = 4\ndef f(n, one):\n  return n, one, K", "7, 1", all).returned, "(s0, 1, 4)");
}

TEST(TraceSizes, BranchOnASymbolIsAFact) {
  TraceOptions options;
  options.hints.dynamic_sources = {"L['n']"};
  const Trial t = trial("def f(n):\n  return 'big' if n > 5 else 'small'", "7", options);
  EXPECT_EQ(t.returned, "'big'");
  EXPECT_EQ(t.trace.recording->shapes().facts().size(), 1u);
}

TEST(TraceEffects, WritesToRealObjectsAreListed) {
  const Trial t = trial(
      "L = []\nclass C: pass\nc = C()\nK = 1\ndef f(x):\n  global K\n  L.append(x)\n  c.a = 2\n  K = 3\n  return "
      "len(L), c.a, K",
      kX);
  EXPECT_EQ(t.returned, "(1, 2, 3)");
  EXPECT_EQ(t.trace.effects.size(), 3u);
  EXPECT_EQ(run_eagerly("L = []\ndef f(x):\n  return len(L)", kX), "0");
}

TEST(TraceLines, OpsCarryTheUsersLine) {
  const Trial t = trial("def f(x):\n  y = x + 1\n  return y * 2", kX);
  EXPECT_EQ(t.lines, (Lines{"program.py:3", "program.py:4"}));
}

}  // namespace
}  // namespace framejit::frame_hook::fake
