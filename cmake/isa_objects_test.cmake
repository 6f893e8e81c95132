# Fails if an object that was compiled for one instruction-set level defines a function that the linker could take for
# the whole program.
#
# Inline functions and templates are weak: each object that uses one carries a copy, and the linker keeps the first copy
# it meets for the whole program. If that copy comes from an object compiled for AVX-512, a machine without it runs
# AVX-512 instructions in code that has nothing to do with the row loops, and crashes. So everything that such an object
# defines must be a template of its own level, which gives it a different name on every level, or be inlined, or be
# local to the object. This test looks at the names that are left.
#
#   cmake -DNM=nm -DLEVEL=<kX86V3, ...> -DOBJECTS=<a.o>|<b.o> -P isa_objects_test.cmake
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
if(NOT OBJECTS)
  message(FATAL_ERROR "no objects to look at")
endif()
file(READ ${CMAKE_CURRENT_LIST_DIR}/../raggrad/core/isa.h isa_header)
if(NOT isa_header MATCHES "${LEVEL} = ([0-9]+)")
  message(FATAL_ERROR "raggrad/core/isa.h has no number for ${LEVEL}")
endif()
set(template_argument "3IsaE${CMAKE_MATCH_1}E")  # as it is mangled, without the namespace, which may be abbreviated
set(checked 0)
set(bad "")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --defined-only --format=posix ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  # W, V: weak function, weak object. u: unique, weak as well.
  string(REGEX MATCHALL "[^\n ]+ [WVu] [^\n]*" weak "${symbols}")
  foreach(symbol IN LISTS weak)
    math(EXPR checked "${checked} + 1")
    # DW.ref.*: pointers that the exception tables use, no code.
    if(NOT symbol MATCHES "${template_argument}|^DW\\.ref\\.")
      string(APPEND bad "\n  ${symbol}\n    in ${object}")
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "weak symbols that are no templates of ${LEVEL}:${bad}")
endif()
message(STATUS "${checked} weak symbols, all of ${LEVEL}")
