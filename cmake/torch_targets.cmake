# framejit_torch: the headers and libraries of the torch that Python_EXECUTABLE imports. find_package(Torch) is not
# used: it drags in CUDA, MKL and compiler flags that the extension does not need.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import os, torch, torch.utils.cpp_extension as e
print(';'.join(p for p in e.include_paths() if os.path.isdir(p)))
print(';'.join(e.library_paths()))
print(torch.__version__.split('+')[0])
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE torch_error RESULT_VARIABLE torch_failed)
if(torch_failed)
  message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch; run 'make setup', "
    "or configure with -DFRAMEJIT_WITH_TORCH=OFF\n${torch_error}")
endif()
string(REPLACE ";" "\\;" torch_facts "${torch_facts}")
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 FRAMEJIT_TORCH_INCLUDES)
list(GET torch_facts 1 FRAMEJIT_TORCH_LIBRARY_DIRS)
list(GET torch_facts 2 FRAMEJIT_TORCH_VERSION)
list(GET torch_facts 3 torch_cxx11_abi)
message(STATUS "torch ${FRAMEJIT_TORCH_VERSION} of Python ${Python_VERSION}")

add_library(framejit_torch INTERFACE)
target_include_directories(framejit_torch SYSTEM INTERFACE ${FRAMEJIT_TORCH_INCLUDES})
# AT_PER_OPERATOR_HEADERS: torch's headers do not include the functions of all of its ops.
target_compile_definitions(framejit_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi} AT_PER_OPERATOR_HEADERS)
foreach(name c10 torch_cpu torch torch_python)
  find_library(FRAMEJIT_LIB_${name} ${name} PATHS ${FRAMEJIT_TORCH_LIBRARY_DIRS} NO_DEFAULT_PATH REQUIRED)
  add_library(framejit_torch_${name} SHARED IMPORTED)
  set_target_properties(framejit_torch_${name} PROPERTIES IMPORTED_LOCATION "${FRAMEJIT_LIB_${name}}")
  target_link_libraries(framejit_torch INTERFACE framejit_torch_${name})
endforeach()
target_link_options(framejit_torch INTERFACE -Wl,--allow-shlib-undefined -Wl,--no-as-needed)
