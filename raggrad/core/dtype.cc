#include "raggrad/core/dtype.h"

namespace raggrad {
namespace {

struct Info {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr Info kInfos[] = {
    {DType::kFloat32, "float32", 4},
    {DType::kFloat64, "float64", 8},
    {DType::kInt32, "int32", 4},
    {DType::kUInt8, "uint8", 1},
    {DType::kInt16, "int16", 2},
    {DType::kInt8, "int8", 1},
    {DType::kString, "string", sizeof(String)},
    {DType::kComplex64, "complex64", 8},
    {DType::kInt64, "int64", 8},
    {DType::kBool, "bool", 1},
    {DType::kQInt8, "qint8", 1},
    {DType::kQUInt8, "quint8", 1},
    {DType::kQInt32, "qint32", 4},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kQInt16, "qint16", 2},
    {DType::kQUInt16, "quint16", 2},
    {DType::kUInt16, "uint16", 2},
    {DType::kComplex128, "complex128", 16},
    {DType::kHalf, "half", 2},
    {DType::kUInt32, "uint32", 4},
    {DType::kUInt64, "uint64", 8},
    {DType::kFloat8E5M2, "float8_e5m2", 1},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1},
    {DType::kFloat8E4M3B11FNUZ, "float8_e4m3b11fnuz", 1},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1},
    {DType::kInt4, "int4", 1},
    {DType::kUInt4, "uint4", 1},
    {DType::kInt2, "int2", 1},
    {DType::kUInt2, "uint2", 1},
    {DType::kFloat4E2M1FN, "float4_e2m1fn", 1},
};

const Info* Find(DType dtype) noexcept {
  for (const Info& info : kInfos) {
    if (info.dtype == dtype) return &info;
  }
  return nullptr;
}

}  // namespace

std::string_view DTypeName(DType dtype) noexcept {
  const Info* info = Find(dtype);
  return info ? info->name : "invalid";
}

DType DTypeFromName(std::string_view name) noexcept {
  if (name == "float16") return DType::kHalf;
  for (const Info& info : kInfos) {
    if (info.name == name) return info.dtype;
  }
  return DType::kInvalid;
}

size_t DTypeSize(DType dtype) noexcept {
  const Info* info = Find(dtype);
  return info ? info->size : 0;
}

}  // namespace raggrad
