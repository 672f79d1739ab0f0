// frame_hook/trace/machine/handlers_data.cpp — locals, cells, globals, constants, stack shuffling; the table of
// handlers.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::kNoSource;
using guards::SourceKind;

namespace {

struct HandlerTable {
  OpcodeHandler rows[static_cast<size_t>(Op::kCount)] = {};
  HandlerTable() {
#define HANDLER(op, ...) rows[static_cast<size_t>(Op::op)] = on_part<&OpcodeHandlers::op>;
#include "frame_hook/trace/machine/handlers.def"
#undef HANDLER
  }
};

const HandlerTable kHandlers;

CellValue* cell_in(SymbolicFrame& f, int slot) {
  Value* v = f.locals[static_cast<size_t>(slot)];
  FJ_ASSERT(v && v->kind == ValueKind::cell, "a cell slot without a cell");
  return as<CellValue>(v);
}

// For a global that is written or deleted.
void drop_global(Dicts& dicts, SymbolicFrame& f, PyObject* name, Value* key) {
  auto* globals = as<DictValue>(f.globals);
  PyObject* item = PyDict_GetItemWithError(globals->object.get(), name);
  if (item && may_be_half_way(Py_TYPE(item))) dicts.drops.drop(dicts.get(globals, key));
}

Value* name_value(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  Value*& known = f.cache->names[static_cast<size_t>(i.arg)];
  if (!known) known = heap.constant_value(i.object);
  return known;
}

}  // namespace

OpcodeHandler handler_of(Op op) { return kHandlers.rows[static_cast<size_t>(op)]; }

namespace {

[[noreturn]] void raise_named(Errors& errors, PyObject* name, const std::string& message) {
  InstanceValue* error = errors.new_exception(PyExc_NameError, {errors.heap.string(message)});
  write_member(error, member_descriptor(PyExc_NameError, "name"), errors.heap.constant_value(name));
  errors.raise(error);
}

}  // namespace

Value* OpcodeHandlers::raise_unbound(Errors& errors, SymbolicFrame& f, int slot) {
  const std::string name = exact_text(f.code->local_name(slot));
  if (f.code->local_kind(slot) & kFreeSlot)
    raise_named(
        errors, f.code->local_name(slot),
        "cannot access free variable '" + name + "' where it is not associated with a value in enclosing scope");
  errors.raise_new(PyExc_UnboundLocalError,
                   "cannot access local variable '" + name + "' where it is not associated with a value");
}

Value* OpcodeHandlers::raise_name_error(Errors& errors, PyObject* name) {
  raise_named(errors, name, std::string("name '") + exact_text(name) + "' is not defined");
}

Flow OpcodeHandlers::nop(NoPart&, SymbolicFrame&, const Instruction&) { return Flow::next; }
Flow OpcodeHandlers::resume(NoPart&, SymbolicFrame&, const Instruction&) { return Flow::next; }

Flow OpcodeHandlers::make_cell(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  auto* cell = heap.make<CellValue>(ValueKind::cell, &PyCell_Type);
  Value*& slot = f.locals[static_cast<size_t>(i.arg)];
  cell->contents = slot;
  cell->loaded = true;
  slot = cell;
  f.mark_written(i.arg);
  return Flow::next;
}

Flow OpcodeHandlers::copy_free_vars(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  FJ_ASSERT(f.function, "free variables without a function");
  shadows.load(f.function);
  const size_t first = f.locals.size() - static_cast<size_t>(i.arg);
  FJ_ASSERT(f.function->closure.size() == static_cast<size_t>(i.arg), "a closure of another length");
  std::copy(f.function->closure.begin(), f.function->closure.end(), f.locals.begin() + static_cast<long>(first));
  for (size_t slot = first; slot < f.locals.size(); ++slot) f.mark_written(static_cast<int>(slot));
  return Flow::next;
}

Flow OpcodeHandlers::pop_top(Drops& drops, SymbolicFrame& f, const Instruction& i) {
  for (int count = std::max(i.arg, 1); count > 0; --count) drops.drop(f.pop());
  return Flow::next;
}

Flow OpcodeHandlers::push_null(Heap& heap, SymbolicFrame& f, const Instruction&) {
  f.push(heap.null_value());
  return Flow::next;
}

Flow OpcodeHandlers::copy(NoPart&, SymbolicFrame& f, const Instruction& i) {
  f.push(f.top(static_cast<size_t>(i.arg) - 1));
  return Flow::next;
}

Flow OpcodeHandlers::swap(NoPart&, SymbolicFrame& f, const Instruction& i) {
  std::swap(f.top(), f.top(static_cast<size_t>(i.arg) - 1));
  return Flow::next;
}

Flow OpcodeHandlers::load_fast(Errors& errors, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.locals[static_cast<size_t>(i.arg)];
  errors.heap.facts.relies_on_binding(f, i.arg);
  if (!v) raise_unbound(errors, f, i.arg);
  f.push(v);
  return Flow::next;
}

Flow OpcodeHandlers::load_fast_and_clear(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  heap.facts.relies_on_binding(f, i.arg);
  f.mark_written(i.arg);
  Value* v = std::exchange(f.locals[static_cast<size_t>(i.arg)], nullptr);
  f.push(v ? v : heap.null_value());
  return Flow::next;
}

Flow OpcodeHandlers::store_fast(Drops& drops, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  f.mark_written(i.arg);
  drops.drop(std::exchange(f.locals[static_cast<size_t>(i.arg)], v->kind == ValueKind::null ? nullptr : v));
  return Flow::next;
}

Flow OpcodeHandlers::delete_fast(Drops& drops, SymbolicFrame& f, const Instruction& i) {
  drops.shadows.facts.relies_on_binding(f, i.arg);
  f.mark_written(i.arg);
  Value* v = std::exchange(f.locals[static_cast<size_t>(i.arg)], nullptr);
  if (!v) raise_unbound(drops.shadows.errors, f, i.arg);
  drops.drop_by_del(v);
  return Flow::next;
}

Flow OpcodeHandlers::load_const(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  Value*& known = f.cache->constants[static_cast<size_t>(i.arg)];
  if (!known) known = heap.constant_value(i.object);
  f.push(known);
  return Flow::next;
}

Flow OpcodeHandlers::load_deref(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  Value* v = cell_contents(shadows, cell_in(f, i.arg));
  if (!v) raise_unbound(shadows.errors, f, i.arg);
  f.push(v);
  return Flow::next;
}

Flow OpcodeHandlers::store_deref(Drops& drops, SymbolicFrame& f, const Instruction& i) {
  CellValue* cell = cell_in(f, i.arg);
  will_mutate(drops.shadows, cell);
  // Not guarded: the write does not depend on whether the cell was bound.
  if (PyObject* before = cell->loaded ? nullptr : PyCell_GET(cell->object.get()))
    cell->contents =
        drops.shadows.heap.wrap(before, drops.shadows.facts.sources().add(SourceKind::cell_contents, cell->source));
  cell->loaded = true;
  drops.drop(std::exchange(cell->contents, f.pop()));
  return Flow::next;
}

Flow OpcodeHandlers::delete_deref(Drops& drops, SymbolicFrame& f, const Instruction& i) {
  CellValue* cell = cell_in(f, i.arg);
  if (!cell_contents(drops.shadows, cell)) raise_unbound(drops.shadows.errors, f, i.arg);
  will_mutate(drops.shadows, cell);
  drops.drop_by_del(std::exchange(cell->contents, nullptr));
  return Flow::next;
}

// A name is looked up once per code object, as long as nothing in the trace writes to the dictionary.
Flow OpcodeHandlers::load_global(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  auto* globals = as<DictValue>(f.globals);
  CodeCache& cache = *f.cache;
  if (cache.globals_dict != globals) {
    std::fill(cache.globals.begin(), cache.globals.end(), nullptr);
    cache.globals_dict = globals;
  }
  Value* v = globals->mutated || globals->owner ? nullptr : cache.globals[static_cast<size_t>(i.arg)];
  if (!v) {
    Value* name = name_value(dicts.heap, f, i);
    v = dicts.get(globals, name);
    if (!v) v = dicts.get(as<DictValue>(f.builtins), name);
    if (!v) raise_name_error(dicts.errors, i.object);
    cache.globals[static_cast<size_t>(i.arg)] = v;
  }
  const bool null = i.has(Instruction::kPushNull), above = i.has(Instruction::kNullAbove);
  if (null && !above) f.push(dicts.heap.null_value());
  f.push(v);
  if (null && above) f.push(dicts.heap.null_value());
  return Flow::next;
}

Flow OpcodeHandlers::store_global(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  drop_global(dicts, f, i.object, name_value(dicts.heap, f, i));
  dicts.set(as<DictValue>(f.globals), name_value(dicts.heap, f, i), v);
  return Flow::next;
}

Flow OpcodeHandlers::delete_global(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  drop_global(dicts, f, i.object, name_value(dicts.heap, f, i));
  if (!dicts.remove(as<DictValue>(f.globals), name_value(dicts.heap, f, i))) raise_name_error(dicts.errors, i.object);
  return Flow::next;
}

Flow OpcodeHandlers::load_assertion_error(Heap& heap, SymbolicFrame& f, const Instruction&) {
  f.push(heap.constant_value(PyExc_AssertionError));
  return Flow::next;
}

Flow OpcodeHandlers::load_build_class(Dicts& dicts, SymbolicFrame& f, const Instruction&) {
  static PyObject* const name = PyUnicode_InternFromString("__build_class__");
  Value* found = dicts.get(as<DictValue>(f.builtins), dicts.heap.constant_value(name));
  if (!found) dicts.errors.raise_new(PyExc_NameError, "__build_class__ not found");
  f.push(found);
  return Flow::next;
}

}  // namespace framejit::frame_hook
