# Sets RAGGRAD_WITH_TORCH: whether raggrad.torch's operators are built. They need torch's headers, not torch: those that
# tools/setup/torch_headers.sh fetched into build/, or those of the torch that the Python has. RAGGRAD_TORCH_INCLUDE
# names others.
set(RAGGRAD_WITH_TORCH OFF)
if(NOT RAGGRAD_TORCH STREQUAL OFF)
  if(NOT RAGGRAD_TORCH_INCLUDE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE installed_torch ERROR_QUIET)
    find_path(RAGGRAD_TORCH_INCLUDE torch/headeronly/version.h NO_DEFAULT_PATH
              PATHS ${PROJECT_SOURCE_DIR}/build/torch-headers/include ${installed_torch}/include)
  endif()
  # The header of version 2.10 is the first that has what the operators use.
  if(EXISTS ${RAGGRAD_TORCH_INCLUDE}/torch/headeronly/version.h)
    file(STRINGS ${RAGGRAD_TORCH_INCLUDE}/torch/headeronly/version.h numbers REGEX "TORCH_VERSION_M(AJOR|INOR) [0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    list(JOIN numbers . torch_version)
  endif()
  if(torch_version VERSION_GREATER_EQUAL 2.10)
    set(RAGGRAD_WITH_TORCH ON)
  elseif(RAGGRAD_TORCH STREQUAL ON)
    message(FATAL_ERROR "RAGGRAD_TORCH is ON, but no headers of torch 2.10 or newer were found: "
                        "run tools/setup/torch_headers.sh or set RAGGRAD_TORCH_INCLUDE")
  endif()
endif()
