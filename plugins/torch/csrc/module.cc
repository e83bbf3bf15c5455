// The Python module of the backend: its class, and what it was built for.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.h"
#include "options.h"
#include "python_access.h"
#include "reconfigurable.h"

namespace py = pybind11;
using weft_torch::WeftBackend;
using weft_torch::WeftOptions;

namespace {

constexpr auto kDefaultTimeout = std::chrono::milliseconds(30 * 60 * 1000);

int weft_version() {
  int version = 0;
  weftGetVersion(&version);
  return version;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch.distributed");  // has the base classes
  py::class_<WeftOptions, c10::intrusive_ptr<WeftOptions>, c10d::Backend::Options>(module, "Options")
      .def("__deepcopy__",
           [](const WeftOptions& self, const py::dict&) { return c10::make_intrusive<WeftOptions>(self); });
  py::class_<WeftBackend, c10::intrusive_ptr<WeftBackend>, c10d::Backend>(module, "WeftBackend")
      .def(py::init<c10::intrusive_ptr<c10d::Store>, int, int, std::chrono::milliseconds, std::string,
                    std::vector<uint64_t>, std::string>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kDefaultTimeout,
           py::arg("group_name") = "", py::arg("global_ranks") = std::vector<uint64_t>(),
           py::arg("accelerator") = "", py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &WeftBackend::getBackendOptions)
      .def(
          "perform_nocolor_split", [](WeftBackend&, const py::object&) {},
          "Nothing: a group that is split off meets without the ranks outside it.")
      .def("cancel_coalescing", &WeftBackend::cancel_coalescing, py::call_guard<py::gil_scoped_release>(),
           "In place of _end_coalescing(): the calls that this thread has coalesced are not sent.")
      .def("dump", &WeftBackend::dump, py::arg("path"), py::call_guard<py::gil_scoped_release>(),
           "Writes Weft's flight recorder, the last operations with sizes and times, to a file as JSON.");
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  using weft_torch::ReconfigurableBackend;
  py::class_<ReconfigurableBackend, c10::intrusive_ptr<ReconfigurableBackend>, c10d::Backend>(
      module, "ReconfigurableBackend")
      .def(py::init<c10::intrusive_ptr<c10d::Store>, int, int, std::chrono::milliseconds, std::string,
                    std::string>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kDefaultTimeout,
           py::arg("group_name") = "", py::arg("accelerator") = "")
      .def("cancel_coalescing", &ReconfigurableBackend::cancel_coalescing,
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &ReconfigurableBackend::getBackendOptions);
#endif
  module.def(
      "device_lacks",
      [](int device) {
        return std::string(weftDeviceQuery(device) == weftSuccess ? "" : weftGetLastError(nullptr));
      },
      py::arg("device"),
      "What keeps Weft from the memory of CUDA device `device`, as a sentence; \"\" if nothing does.");
  module.def(
      "end_python_access", &weft_torch::end_python_access, py::call_guard<py::gil_scoped_release>(),
      "Threads of Weft run no callbacks and release no tensors from here on. Waits for those that do so, 2 s "
      "at most.");
  module.attr("torch_version") = TORCH_VERSION;
  module.attr("weft_version") = weft_version();
}
