"""Where a text decides although objects are recognised by identity: file, a part of the line, and why nothing of the
program is mistaken for something else."""

# Names of types, modules and functions.
NAMES = [
    ("frame_hook/trace/values/c_packages.cpp", "is_made_by_c(type) && within(type->tp_name", "rows of c_packages.def"),
    ("frame_hook/trace/values/c_packages.cpp", "std::string_view(type->tp_name).find('.')", "a type that C code made"),
    ("frame_hook/trace/values/c_packages.cpp", 'tp_name).find("pybind11")', "a type that C code made"),
    ("frame_hook/trace/values/c_packages.cpp", "return name && within(name, package)", "a module that C code made"),
    ("frame_hook/trace/values/loaded_modules.cpp", "name.starts_with(package)", "who asks compares the object too"),
    ("frame_hook/trace/values/originals.cpp", "path.find('.') == std::string_view::npos", "a type that C code made"),
    ("frame_hook/trace/values/originals.cpp", "starts_with('_') ? 1 : 0", "a type that C code made"),
    ("frame_hook/trace/values/originals.cpp", "tp_name).starts_with(\"pybind11\")", "a type that C code made"),
    ("frame_hook/trace/values/originals.cpp", 'path.find("<locals>")', "what code says of itself"),
    ("frame_hook/trace/values/originals.cpp", "of = path.substr(0, path.rfind('.'))", "what code says of itself"),
    ("guards/cpython/lru_cache.cpp", 'name != "functools._lru_cache_wrapper"', "checks an object of a module"),
    ("frame_hook/trace/protocol/attributes.cpp", 'text == "__name__"', "reads the name, for the program"),
    ("frame_hook/trace/protocol/attributes.cpp", 'text == "__qualname__"', "reads the name, for the program"),
    ("frame_hook/trace/protocol/lookup.cpp", 'std::string_view(name) != "__hash__"', "the name of an attribute"),
    ("frame_hook/trace/values/describe.cpp", '"pybind11_detail_function_record"', "shortens what a message says"),
    ("frame_hook/trace/values/describe.cpp", "own.find('.') != std::string::npos", "shortens what a message says"),
    ("frame_hook/trace/values/describe.cpp", 'module == "builtins" ? own', "shortens what a message says"),
    ("frame_hook/trace/protocol/strings.cpp", 'name == "__str__" || name == "__repr__"', "the name of an attribute"),
    ("frame_hook/trace/machine/handlers_build.cpp", '*module != "builtins"', "the text of an error"),
    ("frame_hook/trace/protocol/patterns.cpp", "PyUnicode_Compare(other, name)", "attributes of a pattern"),
    ("frame_hook/trace/torch/special.cpp", 'within(text_of(name), "torch._dynamo', "names of sys.modules, for the log"),
    ("frame_hook/trace/torch/inlined.cpp", 'interned("helper")', "a constant of a function that a row names"),
    ("frame_hook/resume/frame_names.cpp", "name.starts_with('.')", "only what a message calls the local"),
    ("frame_hook/resume/misses.cpp", "failure.because.ends_with(", "only which line a message names"),
    ("frame_hook/resume/global_mode.cpp", 'name.ends_with(".forward")', "code of torch's own folder is only tried"),
    ("frame_hook/resume/global_mode.cpp", "std::regex_search(full, ", "a pattern of the user's settings"),
    ("frame_hook/aten/captured_calls.cpp", "name.compare(0, prefix, row.prefix)", "only how the graph names the call"),
    ("frame_hook/aten/captured_calls.cpp", 'module == "builtins" ? own', "only how the graph names the call"),
    ("frame_hook/aten/recording.cpp", "result.substr(0, 200)", "shortens what a message says"),
]
# Calls of PyUnicode_AsUTF8 and PyUnicode_AsUTF8AndSize, which may return null. Others ask guards/cpython/names.h.
UTF8 = [
    ("guards/cpython/names.cpp", "PyUnicode_AsUTF8AndSize(object, &size)", "the place that others ask"),
    ("guards/cpython/names.cpp", "PyUnicode_AsUTF8AndSize(str, &size)", "the place that others ask"),
    ("python/module.cpp", "PyUnicode_AsUTF8(rows)", "raises the error to the caller"),
    ("python/module.cpp", "PyUnicode_AsUTF8AndSize(text, &size)", "raises the error to the caller"),
    ("python/module.cpp", "PyUnicode_AsUTF8(op)", "raises the error to the caller"),
    ("frame_hook/resume/call_settings.cpp", "PyUnicode_AsUTF8(backend.get())", "raises the error to the caller"),
    ("guards/class_state.cpp", "PyUnicode_AsUTF8AndSize(name, &n)", "checks for null, takes NULs"),
    ("guards/describe.cpp", "PyUnicode_AsUTF8AndSize(str, &size)", "checks for null, takes NULs"),
]
# The same in Python: no row yet.
PYTHON_NAMES: list[tuple[str, str, str]] = []

# Texts of errors and dumps are rows of torch_texts.def. Words of our own languages, in files that read them, do not
# count.
ERRORS = [
    ("graph/number_history.cpp", '"framejit::"', "a name of an operator, not a message"),
    ("graph/aten/python_kernels.cpp", '"library.py:"', "a path of a file, not a message"),
    ("graph/aten/op_info.cpp", 'base.find("::")', "a name of an operator, not a message"),
    ("runtime/aten/extern_call.cpp", '.find("::")', "a name of an operator, not a message"),
    ("runtime/aten/shape_functions.cpp", '.find("::")', "a name of an operator, not a message"),
    ("inductor/autotune.cpp", '.find("::")', "a name of an operator, not a message"),
    ("frame_hook/trace/values/describe.cpp", 'text.find(": ")', "shortens what a message says"),
    ("frame_hook/trace/values/library_files.cpp", '"<frozen "', "the file of a module that CPython froze"),
    ("frame_hook/trace/protocol/stand_ins.cpp", '"framejit.Unread"', "the name of a class that we made"),
]

# Words that graph/, inductor/ and runtime/ compare. Ops are rows of graph/known_ops.def and other tables.
WORDS_OF_FILES = {
    "graph/aten/python_kernels.cpp": "reads the rows of torch's own list of kernels",
    "runtime/base/config.cpp": "reads the settings",
    "runtime/base/log.cpp": "reads the settings of the log",
    "inductor/lowering/formula.cpp": "reads our own formulas",
}
WORDS = [
    ("graph/aten/op_info.cpp", 'base.find("::")', "the namespace of an op"),
    ("runtime/aten/shape_functions.cpp", 'op.find("::")', "the namespace of an op"),
    ("graph/aten/op_info.cpp", "overload.ends_with(suffix)", "torch's names of overloads; arguments decide"),
    ("graph/aten/op_info.cpp", 'base.ends_with("_")', "torch's mark of ops in place; arguments decide"),
    ("graph/passes/decompose_lists.cpp", "op.starts_with(kNumberIsTensor)", "the namespace of an op"),
    ("inductor/gpu/gpu_target.cpp", "architecture.starts_with(kPrefix)", "how NVIDIA numbers its architectures"),
    ("runtime/gpu_driver.cpp", "architecture.starts_with(wave.architectures)", "rows of a table beside it"),
    ("runtime/gpu_driver.cpp", 'name.starts_with("gfx")', "refuses names that are not architectures of AMD"),
    ("graph/aten/composites.cpp", "args[3].toStringRef()", "an option of the op: the side of the padding"),
    ("graph/aten/fallback.cpp", '.name() == "generator"', "an argument of torch's schemas"),
    ("graph/aten/written_memory.cpp", 'name.starts_with("_foreach_")', "torch's mark of all ops of lists"),
    ("graph/aten/float_ops.cpp", "name().starts_with(kAten)", "the namespace of an op"),
    ("graph/aten/meta_call.cpp", '.name() == "generator"', "an argument of torch's schemas"),
    ("graph/aten/op_info.cpp", 'a.name() == "scalars"', "an argument of torch's schemas"),
    ("graph/aten/op_info.cpp", '.name() == "device"', "an argument of torch's schemas"),
    ("graph/aten/op_info.cpp", "name.starts_with(kAten)", "the namespace of an op"),
    ("graph/number_history.cpp", 'op.name.starts_with("framejit::")', "the namespace of an op"),
    ("graph/number_history.cpp", "name.starts_with(prefix)", "rows of number_ops.def stand for all overloads"),
    ("graph/number_history.cpp", "name.ends_with('_')", "rows of number_ops.def stand for all overloads"),
    ("graph/ops/linalg.cpp", '*mode != "reduced"', "an option of the op: which factors it returns"),
    ("graph/ops/linalg.cpp", '*mode == "complete"', "an option of the op: which factors it returns"),
    ("graph/ops/linalg.cpp", '*mode == "r"', "an option of the op: which factors it returns"),
    ("graph/passes/decompose_lists.cpp", "name.starts_with(kNumberIsTensor)", "the namespace of an op"),
    ("graph/passes/decompose_shape.cpp", 'name.find("_copy")', "a copy is named after its view"),
    ("inductor/autotune.cpp", 'op->name.find("::")', "the namespace of an op"),
    ("inductor/choices.cpp", "config().", "the word of a setting"),
    ("inductor/stages.cpp", "config().products ==", "the word of a setting"),
    ("inductor/lowering/wide_products.cpp", "config().bf16_products ==", "the word of a setting"),
    ("inductor/lowering/lower.cpp", "name.starts_with(kNumberIsTensor)", "the namespace of an op"),
    ("inductor/lowering/pointwise.cpp", 'arguments[i].name != "_"', "a place of our own formulas"),
    ("inductor/lowering/pointwise.cpp", '*mode == "trunc"', "an option of the op: how it rounds"),
    ("inductor/lowering/pointwise.cpp", '*mode == "floor"', "an option of the op: how it rounds"),
    ("inductor/lowering/pointwise.cpp", 'ctx.text(1).value_or("none") == "tanh"', "an option of the op: which formula"),
    ("inductor/lowering/pointwise.cpp", 'ctx.text(2).value_or("none") != "none"', "an option of the op: how it rounds"),
    ("inductor/lowering/scatter.cpp", '*name != "add" && *name != "multiply"', "an option of the op: how it joins"),
    ("inductor/lowering/scatter.cpp", '*name == "add" ? ReduceOp', "an option of the op: how it joins"),
    ("inductor/target/machine.cpp", '== "Instruction"', "a word of the system's files"),
    ("inductor/target/target_info.cpp", 'architecture == "x86_64"', "what the system calls the processor"),
    ("inductor/target/target_info.cpp", 'architecture != "x86_64"', "what the system calls the processor"),
    ("runtime/aten/extern_call.cpp", '.name() == "dropout_p"', "an argument of torch's schemas"),
    ("runtime/executable.cpp", "std::string_view(kind_)", "our own word for a plan, which messages print"),
    ("runtime/gpu_driver.cpp", 'name.starts_with("libcudart")', "files that the process has loaded"),
    ("runtime/team.cpp", 'strcasecmp(policy, "passive")', "the word of a variable of OpenMP"),
    ("runtime/gpu_driver.cpp", 'name.starts_with("gfx")', "what the driver calls its device"),
]

# Sentinel numbers: no number of the program may be taken for one.
SENTINELS = [("runtime/kernel_cache.cpp", "head.magic == kRecordMagic", "the first bytes of a file that we wrote")]

# Rules ask for the CPU in one way: a CPU may have an index.
CPUS = [("graph/tensor_meta.cpp", "meta.device != Device{}", "the text of a device with an index names it")]

# Where members of modules are looked up by name: the home of originals, and places where nothing is believed.
PLACES_OF_LOOK_UPS = {
    "frame_hook/trace/values/originals.cpp": "checks what it finds",
    "frame_hook/trace/values/loaded_modules.cpp": "modules that are loaded, for the home of originals",
    "frame_hook/trace/values/loaded_modules.h": "modules that are loaded, for the home of originals",
}
LOOK_UPS = [
    ("guards/aten/replaced_kernels.cpp", '"torch.library"', "torch's own list of kernels"),
    ("frame_hook/trace/types/objects.cpp", 'PyImport_GetModule(interned("copyreg"))', "as C code does, and guarded"),
    ("frame_hook/resume/source_text.cpp", '"linecache"', "lines of the user's source, for messages"),
    ("frame_hook/trace/machine/handlers_call.cpp", "modules = PyImport_GetModuleDict()", "imports of the program"),
    ("frame_hook/trace/torch/special.cpp", "globals == dict_of_module(row.module)", "globals of a function"),
    ("frame_hook/trace/torch/special.cpp", "modules = PyImport_GetModuleDict()", "only for the log"),
    ("frame_hook/trace/torch/special.cpp", '"torch._inductor.cudagraph_trees"', "only whether it is loaded"),
    ("frame_hook/trace/types/builtins.cpp", "PyImport_ImportModule(row.module)", "only loads a module"),
    ("frame_hook/trace/types/builtins.cpp", '"torch.nn.functional"', "only whether it is loaded"),
    ("frame_hook/trace/types/builtins.cpp", '"numpy.matrixlib"', "only whether it is loaded"),
    ("frame_hook/trace/types/type_expressions.cpp", 'dict_of_module("typing")', "globals of a function"),
    ("frame_hook/trace/types/warnings.cpp", "PyImport_GetModuleDict(), name", "the state of the program's warnings"),
    ("frame_hook/trace/types/writes.cpp", "PyEval_GetBuiltins()", "whether the program writes to it"),
    ("frame_hook/trace/values/c_packages.cpp", "PyImport_GetModuleDict(), row.name", "module of a function"),
    ("frame_hook/trace/values/library_files.cpp", '"__file__"', "the folder of a module"),
    ("frame_hook/trace/values/object_kinds.cpp", 'dict_of_module("typing")', "heirs of an original"),
    ("guards/cpython/lru_cache.cpp", '"_functools"', "checks what it finds"),
    ("guards/fetch.h", "PyImport_GetModuleDict()", "an object that the program imports"),
]
