# The importable package of the build tree: links to the Python files beside the built libraries, and what was built for whom.
file(GLOB python_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/framejit/*.py" "${CMAKE_SOURCE_DIR}/python/framejit/*.pyi"
     "${CMAKE_SOURCE_DIR}/python/framejit/py.typed")
file(MAKE_DIRECTORY "${FRAMEJIT_PACKAGE_DIR}")
foreach(file IN LISTS python_files)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${FRAMEJIT_PACKAGE_DIR}/${name}" SYMBOLIC)
endforeach()
get_filename_component(package_parent "${FRAMEJIT_PACKAGE_DIR}" DIRECTORY)
file(GLOB startup_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/startup/*")
foreach(file IN LISTS startup_files)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${package_parent}/${name}" SYMBOLIC)
endforeach()

set(built_for "${CMAKE_BINARY_DIR}/generated/_built_for.py")
file(CONFIGURE OUTPUT "${built_for}" @ONLY CONTENT [=[
"""What the extension was compiled for (written by CMake)."""
python = (@Python_VERSION_MAJOR@, @Python_VERSION_MINOR@)
torch = "@FRAMEJIT_TORCH_VERSION@"
]=])
file(CREATE_LINK "${built_for}" "${FRAMEJIT_PACKAGE_DIR}/_built_for.py" SYMBOLIC)
