# Fails unless the shared library exports the C functions, what the installed C++ headers declare, and nothing else.
# Weak symbols (instances of std's and of our own public templates, and the C++ runtime's where a toolchain links that
# statically) cannot be kept out and do no harm.
#
#   cmake -DNM=nm -DLIBRARY=libraggrad.so -DBUILD=<build folder> -DCONFIG=Release -DWORK=<scratch folder>
#         -P exports_test.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${NM} --dynamic --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")

# Patterns of mangled names. Public functions and classes begin with a capital letter; internal namespaces do not.
set(weak "^[0-9a-f]+ [WVu] _Z.*(St|7raggrad|9__gnu_cxx|10__cxxabiv1)")
set(public "^[0-9a-f]+ [TDBR] _Z(T[ISV])?NK?7raggrad[0-9]+[A-Z]")
set(c_functions "")
set(wrong "")
foreach(symbol IN LISTS symbols)
  if(symbol MATCHES "^[0-9a-f]+ T (rg_[a-z0-9_]+)$")
    list(APPEND c_functions ${CMAKE_MATCH_1})
  elseif(NOT symbol MATCHES "${weak}" AND NOT symbol MATCHES "${public}")
    list(APPEND wrong "exported, but should not be: ${symbol}")
  endif()
endforeach()

file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${WORK} OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE headers ${WORK}/include/*.h)
set(declared "")
set(cxx_functions 0)
foreach(header IN LISTS headers)
  file(STRINGS ${header} lines REGEX "^RG_API ")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^(]*[ *](rg_[a-z0-9_]+)\\(.*$" "\\1" name "${line}")
    list(APPEND declared ${name})
  endforeach()
  # Free functions begin at the start of a line. One whose body follows is a template.
  file(STRINGS ${header} lines REGEX "^(Result<|std::|size_t |DType |[A-Za-z]+& )[^(]*\\(.*[^{]$")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^(]*[ &]([A-Za-z0-9]+)\\(.*$" "\\1" name "${line}")
    string(LENGTH "${name}" length)
    math(EXPR cxx_functions "${cxx_functions} + 1")
    if(NOT "${symbols}" MATCHES " T _ZN7raggrad${length}${name}E")
      list(APPEND wrong "declared in ${header}, but not exported: raggrad::${name}")
    endif()
  endforeach()
endforeach()
list(SORT declared)
list(SORT c_functions)
if(NOT declared STREQUAL c_functions)
  list(APPEND wrong "C functions declared: ${declared}" "C functions exported: ${c_functions}")
endif()
if(wrong OR NOT declared OR cxx_functions EQUAL 0)
  list(JOIN wrong "\n  " wrong)
  message(FATAL_ERROR "${LIBRARY}, ${cxx_functions} C++ functions declared:\n  ${wrong}")
endif()
list(LENGTH declared count)
message("${count} C and ${cxx_functions} C++ functions are exported")
