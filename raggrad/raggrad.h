// Everything: include this one header.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/parallel.h"
#include "raggrad/core/ragged.h"
#include "raggrad/core/result.h"
#include "raggrad/core/shape.h"
#include "raggrad/core/status.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/core/version.h"
#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"
