// SPDX-License-Identifier: Apache-2.0

// penstock_loader: ImageLoader as a Python module. An iteration gives (images, labels), and each of
// them has __dlpack__, so that torch.from_dlpack and numpy.from_dlpack take it without a copy.

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "image_loader.hpp"

namespace nb = nanobind;
namespace dlpack = penstock::dlpack;
using namespace nb::literals;

namespace {

constexpr const char* kCapsule = "dltensor_versioned";

/// A tensor of a batch.
struct Field {
  loader::Batch batch;
  bool labels;
  dlpack::Device device;
};

[[noreturn]] void raise(PyObject* type, const char* message) {
  PyErr_SetString(type, message);
  throw nb::python_error();
}

/// What the array API's numbers mean: None and 1 the legacy default stream, 2 the calling thread's,
/// others a handle. Nothing: -1, the consumer names no stream.
std::optional<cudaStream_t> stream_of(const nb::object& stream) {
  if (stream.is_none()) return cudaStreamLegacy;
  const auto number = nb::cast<std::int64_t>(stream);
  if (number == -1) return std::nullopt;
  if (number == 1) return cudaStreamLegacy;
  if (number == 2) return cudaStreamPerThread;
  if (number < 3)
    raise(PyExc_ValueError,
          "stream: None, -1 (no stream), 1 (legacy default), 2 (per-thread default) or a handle; 0 "
          "could be any of three");
  return reinterpret_cast<cudaStream_t>(number);
}

bool is_on_cpu(const Field& field) {
  return field.device.device_type == dlpack::DeviceType::cpu;
}

/// Throws BufferError for what the consumer asks for and cannot have.
void check_request(const Field& field, const nb::object& stream, const nb::object& max_version,
                   const nb::object& device, const nb::object& copy) {
  if (max_version.is_none() || nb::cast<int>(max_version[0]) < 1)
    raise(PyExc_BufferError,
          "the tensor is of DLPack 1.0: ask for max_version=(1, 0) or newer, as NumPy 2.1 does");
  if (!copy.is_none() && nb::cast<bool>(copy))
    raise(PyExc_BufferError, "copy=True: the tensor is a view of the batch; clone what you get");
  if (!device.is_none() &&
      nb::make_tuple(static_cast<int>(field.device.device_type), field.device.device_id)
          .not_equal(device))
    raise(PyExc_BufferError, "dl_device: the batch lies on another device, and is not copied");
  if (is_on_cpu(field) && !stream.is_none())
    raise(PyExc_ValueError, "stream: None, since the batch is on the CPU");
}

/// Makes the tensors' consumer wait for the batch, and the end of the lease wait for it.
void use_on(const Field& field, const nb::object& stream) {
  if (is_on_cpu(field)) return;
  const std::optional<cudaStream_t> consumer = stream_of(stream);
  if (!consumer) return;
  // A default stream is that of the device that is current.
  const penstock::DeviceGuard guard(field.device.device_id);
  field.batch.use_on(*consumer);
}

nb::object export_field(const Field& field, const nb::object& stream, const nb::object& max_version,
                        const nb::object& device, const nb::object& copy) {
  check_request(field, stream, max_version, device, copy);
  use_on(field, stream);
  dlpack::OwnedTensor tensor = field.labels ? field.batch.tensor(&loader::Crops::labels)
                                            : field.batch.tensor(&loader::Crops::pixels);
  const auto destroy = [](PyObject* capsule) {  // Who takes the tensor renames the capsule.
    if (PyCapsule_IsValid(capsule, kCapsule) != 0)
      dlpack::OwnedTensor(
          static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule)));
  };
  PyObject* const capsule = PyCapsule_New(tensor.get(), kCapsule, destroy);
  if (capsule == nullptr) throw nb::python_error();
  static_cast<void>(tensor.release());  // The capsule's.
  return nb::steal(capsule);
}

/// Waits without the GIL; Ctrl-C ends it.
nb::tuple next(loader::ImageLoader& images) {
  std::optional<loader::Batch> batch;
  {
    const nb::gil_scoped_release others_run;
    batch = images.next([] {
      const nb::gil_scoped_acquire mine;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
  }
  if (!batch) throw nb::stop_iteration();
  return nb::make_tuple(Field{*batch, false, images.device()},
                        Field{*batch, true, images.device()});
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): of the macro
NB_MODULE(penstock_loader, module) {
  [[maybe_unused]] const nb::exception<penstock::SourceError> source_error(module, "SourceError",
                                                                           PyExc_RuntimeError);
  module.attr("ON_CPU") = loader::on_cpu;

  nb::class_<Field>(module, "Field",
                    "A tensor of a batch. It, and what is made of it, keeps the batch.")
      .def("__dlpack__", &export_field, nb::kw_only(), "stream"_a = nb::none(),
           "max_version"_a = nb::none(), "dl_device"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack_device__",
           [](const Field& field) {
             return nb::make_tuple(static_cast<int>(field.device.device_type),
                                   field.device.device_id);
           })
      .def("use_on", &use_on, "stream"_a,
           "Work on this stream reads the batch too; numbers as __dlpack__ has them.");

  nb::class_<loader::ImageLoader>(
      module, "ImageLoader",
      "Batches of (images, labels): floats of shape (batch, size, size, 3), and int32.\n"
      "Each iteration is an epoch; one that is left early goes on where it was.")
      .def(
          "__init__",
          [](loader::ImageLoader* self, std::filesystem::path folder, std::int64_t batch_size,
             std::int32_t size, int workers, std::uint64_t epochs, std::uint64_t seed, bool train,
             int device, std::size_t device_depth, double stall_seconds) {
            const nb::gil_scoped_release others_run;
            new (self) loader::ImageLoader({std::move(folder), batch_size, size, workers, epochs,
                                            seed, train, device, device_depth, stall_seconds});
          },
          "folder"_a, nb::kw_only(), "batch_size"_a = loader::Options{}.batch_size,
          "size"_a = loader::Options{}.size, "workers"_a = loader::Options{}.workers,
          "epochs"_a = loader::Options{}.epochs, "seed"_a = loader::Options{}.seed,
          "train"_a = loader::Options{}.train, "device"_a = loader::Options{}.device,
          "device_depth"_a = loader::Options{}.device_depth,
          "stall_seconds"_a = loader::Options{}.stall_seconds)
      .def("__iter__", [](nb::handle self) { return self; })
      .def("__next__", &next)
      .def("__len__", &loader::ImageLoader::batches, "Batches of an epoch.")
      .def_prop_ro("classes", &loader::ImageLoader::classes)
      .def("close", &loader::ImageLoader::close, nb::call_guard<nb::gil_scoped_release>())
      .def("__enter__", [](nb::handle self) { return self; })
      .def("__exit__", [](loader::ImageLoader& self, const nb::args&) {
        const nb::gil_scoped_release others_run;
        self.close();
      });
}
