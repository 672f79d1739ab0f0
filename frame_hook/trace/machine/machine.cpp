// frame_hook/trace/machine/machine.cpp — the frame in which a trace begins, and the loop that executes instructions.
#include "frame_hook/trace/machine/machine.h"

#include "frame_hook/trace/machine/opcode_handlers.h"
#include "graph/int64_range.h"
#include "runtime/base/c_stack.h"

namespace framejit::frame_hook {

using guards::SourceKind;

void Machine::reset() {
  code_caches_.clear();
  generators_.clear();
}

std::shared_ptr<SymbolicFrame> Machine::root_frame(const guards::FrameAccess& live, std::shared_ptr<const Code> code,
                                                   size_t start) {
  auto root = std::make_shared<SymbolicFrame>();
  guards::SourceTable& sources = t_.facts.sources();
  codes_[code->code] = code;
  live_builtins_ = live.builtins;
  prepare_frame(*root, std::move(code));
  root->position = start;
  root->is_resumed = start > 0;
  root->is_written.assign(root->locals.size(), false);
  if (live.function && PyFunction_Check(live.function))
    root->function = as<FunctionValue>(t_.heap.wrap(live.function, sources.add(SourceKind::frame_function)));
  auto dictionary = [&](PyObject* object, SourceKind kind) {
    Value* v = t_.heap.wrap(object, sources.add(kind));
    if (v->kind != ValueKind::dict) graph_break(Reason::odd_scope, "globals of another type than dict");
    as<DictValue>(v)->is_globals = true;
    v->type_guarded = true;
    return v;
  };
  root->globals = dictionary(live.globals, SourceKind::globals);
  root->builtins = dictionary(live.builtins, SourceKind::builtins);
  for (size_t slot = 0; slot < root->locals.size(); ++slot)
    if (PyObject* object = live.locals[slot])
      root->locals[slot] =
          t_.heap.wrap(object, sources.add(SourceKind::local, guards::kNoSource, static_cast<int32_t>(slot)));
  for (int k = 0; k < live.stack_size; ++k) {
    PyObject* object = live.stack[k];
    const guards::SourceId source = sources.add(SourceKind::stack, guards::kNoSource, k);
    root->push(object ? t_.heap.wrap(object, source) : t_.heap.null_value());
    t_.facts.relies_on_binding(source, object != nullptr);
  }
  return root;
}

Value* Machine::run_frame(std::shared_ptr<SymbolicFrame> frame) {
  SymbolicFrame& f = *frame;
  // How much stack is left differs a little between traces of a frame: only the first checks.
  if (t_.stack.frames().size() > static_cast<size_t>(options_.max_inline_depth) ||
      (t_.attempts.is_first() && c_stack_is_low()))
    graph_break(Reason::recursion_limit, std::string("a call of ") + text_of(f.code->code->co_qualname));
  t_.stack.push(std::move(frame));
  struct Leave {
    CallStack& stack;
    ~Leave() { stack.pop(); }
  } leave{t_.stack};
  for (;;) {
    Value* raised = nullptr;
    try {
      run_instructions(f);
      if (t_.heap.has_half_way() && !f.yielded && t_.stack.frames().size() > 1) t_.drops.drop_locals(f);
      return f.result;
    } catch (const SymbolicRaise& r) {
      raised = r.exception;
      t_.errors.forget_own_error(raised);  // from here on it is an exception of the program
      t_.attempts.note_raise(raised);
    } catch (const GraphBreak&) {
      t_.attempts.note_break();
      throw;
    } catch (const graph::NoInt64& e) {
      t_.attempts.note_break();
      graph_break(Reason::too_large, e.what());
    }
    enter_handler(f, raised);
  }
}

void Machine::run_instructions(SymbolicFrame& f) {
  f.yielded = false;
  if (f.thrown) throw SymbolicRaise{std::exchange(f.thrown, nullptr)};
  const Instruction* instructions = f.code->instructions.data();
  for (;;) {
    const Instruction& i = instructions[f.position];
    if (!i.has(Instruction::kSecondHalf)) t_.attempts.begin_instruction(f);
    const OpcodeHandler handler = handler_of(i.op);
    if (!handler)
      graph_break(Reason::unsupported_opcode, i.op == Op::unknown ? std::string(raw_name_of(i.raw)) : name_of(i.op));
    const Flow flow = handler(t_, f, i);
    if (flow == Flow::next) ++f.position;
    else if (flow == Flow::leave) return;
  }
}

}  // namespace framejit::frame_hook
