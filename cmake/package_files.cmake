# The importable package of the build tree: links to the Python files next to the built libraries, and the versions that
# they were built for.
file(GLOB python_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/framejit/*.py"
     "${CMAKE_SOURCE_DIR}/python/framejit/*.pyi" "${CMAKE_SOURCE_DIR}/python/framejit/py.typed")
file(MAKE_DIRECTORY "${FRAMEJIT_PACKAGE_DIR}")
include("${CMAKE_CURRENT_LIST_DIR}/dangling_links.cmake")
remove_dangling_links("${FRAMEJIT_PACKAGE_DIR}")
foreach(file IN LISTS python_files)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${FRAMEJIT_PACKAGE_DIR}/${name}" SYMBOLIC)
endforeach()
get_filename_component(package_parent "${FRAMEJIT_PACKAGE_DIR}" DIRECTORY)
remove_dangling_links("${package_parent}")
file(GLOB startup_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/startup/*.py"
     "${CMAKE_SOURCE_DIR}/python/startup/*.pth")
foreach(file IN LISTS startup_files)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${package_parent}/${name}" SYMBOLIC)
endforeach()

# The metadata that an installer makes from pyproject.toml, for code that looks for the package's entry points: torch
# does, for backends.
set(package_info "${package_parent}/framejit-${PROJECT_VERSION}.dist-info")
file(STRINGS "${CMAKE_SOURCE_DIR}/pyproject.toml" entry_points
     REGEX "^\\[project\\.entry-points\\.|= \"framejit\\.[a-z_]+:[a-z_]+\"$")
string(REGEX REPLACE "\\[project\\.entry-points\\.([a-z_]+)\\]" "[\\1]" entry_points "${entry_points}")
string(REPLACE ";" "\n" entry_points "${entry_points}")
string(REPLACE "\"" "" entry_points "${entry_points}")
file(CONFIGURE OUTPUT "${package_info}/entry_points.txt" @ONLY CONTENT "@entry_points@\n")
file(CONFIGURE OUTPUT "${package_info}/METADATA" @ONLY
     CONTENT "Metadata-Version: 2.1\nName: framejit\nVersion: @PROJECT_VERSION@\n")

set(built_for "${CMAKE_BINARY_DIR}/generated/_built_for.py")
file(CONFIGURE OUTPUT "${built_for}" @ONLY CONTENT [=[
"""What the extension was compiled for (written by CMake)."""
python = (@Python_VERSION_MAJOR@, @Python_VERSION_MINOR@)
torch = "@FRAMEJIT_TORCH_VERSION@"
]=])
file(CREATE_LINK "${built_for}" "${FRAMEJIT_PACKAGE_DIR}/_built_for.py" SYMBOLIC)
