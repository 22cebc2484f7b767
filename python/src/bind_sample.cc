#include <cstring>

#include "core.h"
#include "sample.h"

namespace quiver::py {
namespace {

constexpr const char* kCapsule = "quiver_cache.block";

struct SampleObject {
  PyObject ob_base;
  const char* data;
  Py_ssize_t size;
  PyObject* owner;
  std::uint32_t id;
  std::uint32_t row;
};

constexpr Py_ssize_t kLost = -1;  // in place of a size

PyTypeObject* sample_type = nullptr;  // set once, when the module is made

SampleObject* self_of(PyObject* object) {
  return reinterpret_cast<SampleObject*>(object);
}

// False, with an exception set, where the bytes did not arrive.
bool arrived(const SampleObject* self) {
  if (self->size != kLost) return true;
  PyErr_SetString(exception_class(Code::kCancelled).ptr(),
                  "this sample's epoch was given up before it arrived");
  return false;
}

// Sample(batch, row): as a pickle says it.
PyObject* make(PyTypeObject*, PyObject* arguments, PyObject*) {
  PyObject* batch = nullptr;
  unsigned int row = 0;
  if (PyArg_ParseTuple(arguments, "OI", &batch, &row) == 0) return nullptr;
  return sample_of(batch, row);
}

void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_DECREF(self_of(object)->owner);
  PyObject_Free(object);
  Py_DECREF(type);
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  SampleObject* self = self_of(object);
  if (!arrived(self)) return -1;
  return PyBuffer_FillInfo(view, object, const_cast<char*>(self->data), self->size, 1, flags);
}

Py_ssize_t length(PyObject* object) {
  return arrived(self_of(object)) ? self_of(object)->size : -1;
}

PyObject* repr(PyObject* object) {
  if (self_of(object)->size == kLost) return PyUnicode_FromString("<Sample that did not arrive>");
  return PyUnicode_FromFormat("<Sample of item %u, %zd bytes>", self_of(object)->id,
                              self_of(object)->size);
}

PyObject* compare(PyObject* object, PyObject* other, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || PyObject_CheckBuffer(other) == 0) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  Py_buffer view;
  if (!arrived(self_of(object))) return nullptr;
  if (PyObject_GetBuffer(other, &view, PyBUF_SIMPLE) != 0) return nullptr;
  SampleObject* self = self_of(object);
  const bool equal = view.len == self->size &&
                     (self->size == 0 ||
                      std::memcmp(view.buf, self->data, static_cast<std::size_t>(view.len)) == 0);
  PyBuffer_Release(&view);
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

PyObject* item_id(PyObject* object, void*) {
  return PyLong_FromUnsignedLong(self_of(object)->id);
}

// Another process gets a copy, as bytes, unless it is the loop's, which has the memory.
PyObject* reduce(PyObject* object, PyObject*) {
  SampleObject* self = self_of(object);
  if (!arrived(self)) return nullptr;
  if (goes_by_reference(self->owner)) {
    return Py_BuildValue("O(OI)", sample_type, self->owner, self->row);
  }
  PyObject* bytes = PyBytes_FromStringAndSize(self->data, self->size);
  return bytes == nullptr ? nullptr : Py_BuildValue("O(N)", &PyBytes_Type, bytes);
}

PyMethodDef kMethods[] = {
    {"__reduce__", reduce, METH_NOARGS, "A Sample is pickled as its bytes, or by reference."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef kProperties[] = {
    {"id", item_id, nullptr, "Index of the item in its manifest.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyType_Slot kSlots[] = {
    {Py_tp_new, slot(make)},
    {Py_tp_dealloc, slot(dealloc)},
    {Py_tp_repr, slot(repr)},
    {Py_tp_richcompare, slot(compare)},
    {Py_tp_hash, slot(PyObject_HashNotImplemented)},
    {Py_tp_methods, kMethods},
    {Py_tp_getset, kProperties},
    {Py_tp_doc, const_cast<char*>("Bytes of one item: a read-only buffer, not copied.")},
    {Py_sq_length, slot(length)},
    {Py_bf_getbuffer, slot(get_buffer)},
    {0, nullptr},
};
PyType_Spec kSpec = {"quiver_cache._core.Sample", sizeof(SampleObject), 0, Py_TPFLAGS_DEFAULT,
                     kSlots};

void release_block(PyObject* capsule) {
  delete static_cast<std::shared_ptr<const void>*>(PyCapsule_GetPointer(capsule, kCapsule));
}

}  // namespace

nb::object keep_alive(std::shared_ptr<const void> block) {
  auto owned = std::make_unique<std::shared_ptr<const void>>(std::move(block));
  PyObject* capsule = PyCapsule_New(owned.get(), kCapsule, release_block);
  if (capsule == nullptr) nb::raise_python_error();
  static_cast<void>(owned.release());
  return nb::steal(capsule);
}

PyObject* new_sample(ByteSpan data, std::uint32_t id, PyObject* owner, std::uint32_t row) {
  SampleObject* self = PyObject_New(SampleObject, sample_type);
  if (self == nullptr) nb::raise_python_error();
  self->data = reinterpret_cast<const char*>(data.data());
  self->size = static_cast<Py_ssize_t>(data.size());
  self->owner = Py_NewRef(owner);
  self->id = id;
  self->row = row;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* lost_sample(PyObject* owner) {
  PyObject* sample = new_sample({}, 0, owner);
  self_of(sample)->size = kLost;
  return sample;
}

void bind_sample(nb::module_& m) {
  PyObject* type = PyType_FromSpec(&kSpec);
  if (type == nullptr) nb::raise_python_error();
  sample_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Sample") = nb::borrow(type);  // the other reference is sample_type's, for good
}

}  // namespace quiver::py
