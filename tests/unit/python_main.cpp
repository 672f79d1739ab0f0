// tests/unit/python_main.cpp — main() of the unit tests that run inside an embedded Python: the GIL is held in every
// test.
#include <Python.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Py_Initialize();
  const int failed = RUN_ALL_TESTS();
  const bool flushed = Py_FinalizeEx() == 0;
  return failed != 0 || !flushed;
}
