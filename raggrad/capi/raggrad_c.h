// raggrad for C11, and for everything that can call C. README.md beside this file tells more.
//
//   rg_output rows = RG_INIT(rg_output), unique = RG_INIT(rg_output);
//   char text[256];
//   rg_error error = {sizeof error, text, sizeof text};
//   if (rg_sparse_segment_grad_v2(NULL, RG_MEAN, &grad, &indices, &ids, &table_rows, &rows, &unique, &error) != RG_OK)
//   {
//     fprintf(stderr, "%s\n", text);
//   }
//   rg_output_free(NULL, &rows);
//   rg_output_free(NULL, &unique);
//
// Every function that computes takes a context (null: all defaults), its operands, the outputs it fills and a place for
// a message (may be null), and returns a code. raggrad/ops/<family>/<family>.h and the README.md beside it specify what
// each operator computes: shapes, types, errors and memory.
//
// Every struct begins with struct_size, the size of the struct as the program sees it. RG_INIT sets it, and everything
// else to 0, which is always a valid "not given". Structs grow at their end only; the size tells the library which
// members the program knows. A list of structs is an array of pointers, so that it has no stride that could change.
// Exceptions are rg_string and rg_block, which never change.
//
// Nothing here aborts or prints. A null pointer where something is needed, memory that is not aligned, a wrong
// struct_size, and a rank, dimension, dtype or device that does not exist, are RG_INVALID_ARGUMENT. On failure outputs
// own nothing: all their members but struct_size are 0. Operands are read only during the call, or, in device memory,
// by work that the call has queued. All functions may be called from several threads at a time.
#pragma once

#include "raggrad/capi/raggrad_c_base.h"
#include "raggrad/capi/raggrad_c_padded.h"
#include "raggrad/capi/raggrad_c_ragged.h"
#include "raggrad/capi/raggrad_c_segment.h"
#include "raggrad/capi/raggrad_c_sparse.h"
#include "raggrad/capi/raggrad_c_weighted.h"
