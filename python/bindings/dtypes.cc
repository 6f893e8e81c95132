#include "dtypes.h"

#include <array>
#include <string>

#include "runtime.h"

namespace raggrad::python {
namespace {

using DlpackCode = nb::dlpack::dtype_code;

struct Row {
  DType dtype;
  int numpy;  // NPY_NOTYPE: ml_dtypes has it, under the type's own name
  DlpackCode dlpack;
  uint8_t bits;  // in DLPack; 0: DLPack lacks the type, or packs elements that NumPy does not pack
};

constexpr Row kRows[] = {
    {DType::kFloat32, NPY_FLOAT32, DlpackCode::Float, 32},
    {DType::kFloat64, NPY_FLOAT64, DlpackCode::Float, 64},
    {DType::kHalf, NPY_FLOAT16, DlpackCode::Float, 16},
    {DType::kBFloat16, NPY_NOTYPE, DlpackCode::Bfloat, 16},
    {DType::kInt32, NPY_INT32, DlpackCode::Int, 32},
    {DType::kInt64, NPY_INT64, DlpackCode::Int, 64},
    {DType::kInt8, NPY_INT8, DlpackCode::Int, 8},
    {DType::kInt16, NPY_INT16, DlpackCode::Int, 16},
    {DType::kUInt8, NPY_UINT8, DlpackCode::UInt, 8},
    {DType::kUInt16, NPY_UINT16, DlpackCode::UInt, 16},
    {DType::kUInt32, NPY_UINT32, DlpackCode::UInt, 32},
    {DType::kUInt64, NPY_UINT64, DlpackCode::UInt, 64},
    {DType::kComplex64, NPY_COMPLEX64, DlpackCode::Complex, 64},
    {DType::kComplex128, NPY_COMPLEX128, DlpackCode::Complex, 128},
    {DType::kBool, NPY_BOOL, DlpackCode::Bool, 8},
    {DType::kString, NPY_OBJECT, DlpackCode::Int, 0},
    {DType::kFloat8E5M2, NPY_NOTYPE, DlpackCode::Float8_E5M2, 8},
    {DType::kFloat8E4M3FN, NPY_NOTYPE, DlpackCode::Float8_E4M3FN, 8},
    {DType::kFloat8E4M3FNUZ, NPY_NOTYPE, DlpackCode::Float8_E4M3FNUZ, 8},
    {DType::kFloat8E4M3B11FNUZ, NPY_NOTYPE, DlpackCode::Float8_E4M3B11FNUZ, 8},
    {DType::kFloat8E5M2FNUZ, NPY_NOTYPE, DlpackCode::Float8_E5M2FNUZ, 8},
    {DType::kInt4, NPY_NOTYPE, DlpackCode::Int, 0},
    {DType::kUInt4, NPY_NOTYPE, DlpackCode::UInt, 0},
    {DType::kInt2, NPY_NOTYPE, DlpackCode::Int, 0},
    {DType::kUInt2, NPY_NOTYPE, DlpackCode::UInt, 0},
    {DType::kFloat4E2M1FN, NPY_NOTYPE, DlpackCode::Float4_E2M1FN, 0},
};

constexpr std::array<DType, NPY_NTYPES_LEGACY> MakeNumpyTable() {
  std::array<DType, NPY_NTYPES_LEGACY> table{};
  for (const Row& row : kRows) {
    if (row.numpy != NPY_NOTYPE) table[static_cast<size_t>(row.numpy)] = row.dtype;
  }
  // NumPy has two types for two C types of the same size.
  static_assert(sizeof(long) == sizeof(long long));
  table[NPY_LONGLONG] = DType::kInt64;
  table[NPY_ULONGLONG] = DType::kUInt64;
  table[NPY_STRING] = DType::kString;
  return table;
}

// The types of ml_dtypes by their row in kRows; null if the installed version lacks the type.
std::array<PyArray_Descr*, std::size(kRows)> ml_dtypes_descrs{};

}  // namespace

void ImportDTypes() {
  const nb::module_ ml_dtypes = nb::module_::import_("ml_dtypes");
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const std::string name(DTypeName(kRows[i].dtype));
    if (kRows[i].numpy != NPY_NOTYPE || !nb::hasattr(ml_dtypes, name.c_str())) continue;
    if (PyArray_DescrConverter(ml_dtypes.attr(name.c_str()).ptr(), &ml_dtypes_descrs[i]) == NPY_FAIL) {
      throw nb::python_error();
    }
  }
}

DType StorageOf(DType dtype) {
  switch (dtype) {
    case DType::kQInt8:
      return DType::kInt8;
    case DType::kQUInt8:
      return DType::kUInt8;
    case DType::kQInt16:
      return DType::kInt16;
    case DType::kQUInt16:
      return DType::kUInt16;
    case DType::kQInt32:
      return DType::kInt32;
    default:
      return dtype;
  }
}

DType DTypeOfDescr(PyArray_Descr* descr) {
  static constexpr auto kTable = MakeNumpyTable();
  const int type = descr->type_num;
  if (type >= 0 && type < NPY_NTYPES_LEGACY) return kTable[static_cast<size_t>(type)];
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (ml_dtypes_descrs[i] != nullptr && ml_dtypes_descrs[i]->typeobj == descr->typeobj) return kRows[i].dtype;
  }
  return DType::kInvalid;
}

PyArray_Descr* DescrOf(DType dtype) {
  const DType stored = StorageOf(dtype);
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].dtype != stored) continue;
    if (kRows[i].numpy != NPY_NOTYPE) return PyArray_DescrFromType(kRows[i].numpy);
    Py_XINCREF(reinterpret_cast<PyObject*>(ml_dtypes_descrs[i]));
    return ml_dtypes_descrs[i];
  }
  return nullptr;
}

DType DTypeOfDlpack(nb::dlpack::dtype dtype) {
  for (const Row& row : kRows) {
    if (row.bits != 0 && row.bits == dtype.bits && static_cast<uint8_t>(row.dlpack) == dtype.code && dtype.lanes == 1) {
      return row.dtype;
    }
  }
  return DType::kInvalid;
}

std::optional<nb::dlpack::dtype> DlpackOf(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == StorageOf(dtype) && row.bits != 0) {
      return nb::dlpack::dtype{static_cast<uint8_t>(row.dlpack), row.bits, 1};
    }
  }
  return std::nullopt;
}

DType ParseDType(nb::handle object, std::string_view op, std::string_view attribute) {
  if (object.is_none()) return DType::kInvalid;
  DType found = DType::kInvalid;
  std::string name;
  if (nb::isinstance<nb::str>(object)) {
    name = nb::borrow<nb::str>(object).c_str();
    found = DTypeFromName(name);
  } else if (PyArray_DescrCheck(object.ptr()) || PyType_Check(object.ptr())) {
    PyArray_Descr* descr = nullptr;
    name = nb::repr(object).c_str();
    if (PyArray_DescrConverter(object.ptr(), &descr) == NPY_FAIL) {
      PyErr_Clear();
    } else {
      const nb::object owner = nb::steal(reinterpret_cast<PyObject*>(descr));
      found = DTypeOfDescr(descr);
    }
  } else {
    const nb::object own_name = nb::getattr(object, "name", nb::none());
    name = nb::isinstance<nb::str>(own_name) ? nb::borrow<nb::str>(own_name).c_str() : nb::str(object).c_str();
    constexpr std::string_view kTorch = "torch.";
    if (name.starts_with(kTorch)) name.erase(0, kTorch.size());
    found = DTypeFromName(name);
  }
  if (found == DType::kInvalid) {
    RaiseInvalid(op, ": ", attribute, ": expected a dtype such as 'float32', 'bfloat16' or 'string', got ", name);
  }
  return found;
}

}  // namespace raggrad::python
