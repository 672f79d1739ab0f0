# framejit_llvm: LLVM's static archives, linked so that none of its symbols leaves the inductor (a process may hold
# other LLVMs).
find_program(FRAMEJIT_LLVM_CONFIG NAMES llvm-config-22 llvm-config)
if(NOT FRAMEJIT_LLVM_CONFIG)
  message(FATAL_ERROR "llvm-config-22 is missing: apt-get install llvm-22-dev libzstd-dev zlib1g-dev, "
    "or configure with -DFRAMEJIT_WITH_LLVM=OFF")
endif()
function(framejit_llvm_config out)
  execute_process(COMMAND "${FRAMEJIT_LLVM_CONFIG}" ${ARGN} OUTPUT_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${out} ${text} PARENT_SCOPE)
endfunction()
framejit_llvm_config(llvm_includes --includedir)
find_library(FRAMEJIT_LIBZ libz.a REQUIRED)
find_library(FRAMEJIT_LIBZSTD libzstd.a REQUIRED)

set(llvm_hidden "${CMAKE_CURRENT_LIST_DIR}/llvm_hidden.map")
# framejit_llvm_library(NAME components...): these parts of LLVM.
function(framejit_llvm_library name)
  framejit_llvm_config(llvm_libraries --link-static --libfiles ${ARGN})
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${llvm_includes})
  target_link_libraries(${name} INTERFACE ${llvm_libraries} ${FRAMEJIT_LIBZ} ${FRAMEJIT_LIBZSTD}
    Threads::Threads ${CMAKE_DL_LIBS} m)
  target_link_options(${name} INTERFACE -Wl,--exclude-libs,ALL "-Wl,--version-script=${llvm_hidden}" -s)
  set_property(TARGET ${name} PROPERTY INTERFACE_LINK_DEPENDS "${llvm_hidden}")
endfunction()
framejit_llvm_library(framejit_llvm orcjit x86codegen x86asmparser)
