# Sets RAGGRAD_WITH_JAX: whether raggrad.jax's handlers are built. They need the headers of jaxlib 0.7, not jaxlib: those
# that tools/setup/jax_headers.sh fetched into build/, or those that RAGGRAD_JAX_INCLUDE names. Newer headers will not do:
# a handler that was compiled with them is refused by every older jaxlib.
set(RAGGRAD_WITH_JAX OFF)
if(NOT RAGGRAD_JAX STREQUAL OFF)
  if(NOT RAGGRAD_JAX_INCLUDE)
    find_path(RAGGRAD_JAX_INCLUDE xla/ffi/api/c_api.h NO_DEFAULT_PATH PATHS ${PROJECT_SOURCE_DIR}/build/jax-headers/include)
  endif()
  if(EXISTS ${RAGGRAD_JAX_INCLUDE}/xla/ffi/api/c_api.h)
    file(STRINGS ${RAGGRAD_JAX_INCLUDE}/xla/ffi/api/c_api.h numbers REGEX "define XLA_FFI_API_M(AJOR|INOR) [0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    list(JOIN numbers . ffi_version)
  endif()
  if(ffi_version VERSION_EQUAL 0.1)
    set(RAGGRAD_WITH_JAX ON)
  elseif(RAGGRAD_JAX STREQUAL ON)
    message(FATAL_ERROR "RAGGRAD_JAX is ON, but no headers of jaxlib 0.7 were found: "
                        "run tools/setup/jax_headers.sh or set RAGGRAD_JAX_INCLUDE")
  endif()
endif()
