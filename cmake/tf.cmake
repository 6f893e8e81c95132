# Sets RAGGRAD_WITH_TF: whether raggrad.tf's kernels are built. They need the headers of TensorFlow's C interface, not
# TensorFlow: those that tools/setup/tf_headers.sh fetched into build/, or those of the TensorFlow that the Python has.
# RAGGRAD_TF_INCLUDE names others.
set(RAGGRAD_WITH_TF OFF)
if(NOT RAGGRAD_TF STREQUAL OFF)
  if(NOT RAGGRAD_TF_INCLUDE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util; print(importlib.util.find_spec('tensorflow').submodule_search_locations[0])"
      OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE installed_tf ERROR_QUIET)
    find_path(RAGGRAD_TF_INCLUDE tensorflow/c/kernels.h NO_DEFAULT_PATH
              PATHS ${PROJECT_SOURCE_DIR}/build/tf-headers/include ${installed_tf}/include)
  endif()
  if(EXISTS ${RAGGRAD_TF_INCLUDE}/tensorflow/c/kernels.h)
    set(RAGGRAD_WITH_TF ON)
  elseif(RAGGRAD_TF STREQUAL ON)
    message(FATAL_ERROR "RAGGRAD_TF is ON, but no headers of TensorFlow were found: "
                        "run tools/setup/tf_headers.sh or set RAGGRAD_TF_INCLUDE")
  endif()
endif()
