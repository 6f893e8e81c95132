# add_door adds doors/<door> to the Python package if the headers of its framework are found. The framework itself need
# not be installed. RAGGRAD_<DOOR> is ON, OFF or AUTO; with ON, missing headers are an error.
#
# Headers are those that RAGGRAD_<DOOR>_INCLUDE names, those that tools/setup/<door>_headers.sh fetched into build/, or
# those of the Python module INSTALLED, in this order.
#
#   HEADER     a header that tells them from others
#   NEEDS      what is needed, in words
#   INSTALLED  a Python module with headers that will do (optional)
#   VERSION    lines of HEADER that have the numbers of its version, AT_LEAST or EXACTLY that one (optional)
function(add_door door)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;NEEDS;INSTALLED;VERSION;AT_LEAST;EXACTLY" "")
  string(TOUPPER ${door} option)
  if(RAGGRAD_${option} STREQUAL OFF)
    return()
  endif()
  if(arg_INSTALLED AND NOT RAGGRAD_${option}_INCLUDE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util; print(importlib.util.find_spec('${arg_INSTALLED}').submodule_search_locations[0])"
      OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE installed ERROR_QUIET)
  endif()
  find_path(RAGGRAD_${option}_INCLUDE ${arg_HEADER} NO_DEFAULT_PATH
            PATHS ${PROJECT_SOURCE_DIR}/build/${door}-headers/include ${installed}/include)

  set(header ${RAGGRAD_${option}_INCLUDE}/${arg_HEADER})
  set(found OFF)
  if(EXISTS ${header})
    set(found ON)
    if(arg_VERSION)
      file(STRINGS ${header} numbers REGEX "${arg_VERSION}")
      string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
      list(JOIN numbers . version)
      if((arg_AT_LEAST AND version VERSION_LESS arg_AT_LEAST) OR (arg_EXACTLY AND NOT version VERSION_EQUAL arg_EXACTLY))
        set(found OFF)
      endif()
    endif()
  endif()

  if(found)
    add_subdirectory(${PROJECT_SOURCE_DIR}/doors/${door} ${PROJECT_BINARY_DIR}/doors/${door})
    add_dependencies(python_package raggrad_${door})
  elseif(RAGGRAD_${option} STREQUAL ON)
    message(FATAL_ERROR "RAGGRAD_${option} is ON, but no headers of ${arg_NEEDS} were found: "
                        "run tools/setup/${door}_headers.sh or set RAGGRAD_${option}_INCLUDE")
  else()
    message(STATUS "No headers of ${arg_NEEDS}: the Python package is built without raggrad.${door}")
  endif()
endfunction()
