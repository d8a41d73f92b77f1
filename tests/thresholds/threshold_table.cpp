// Prints how many entries our threshold methods send: one line for each method, law and density,
// with tabs between the fields. tests/oracle/estimators.py adds the published estimates.
//
//   threshold_table DENSITY...
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kept_share.hpp"

int main(int n_arguments, char** arguments) {
  using namespace penstock::test;
  try {
    for (const ThresholdMethod& method : threshold_methods())
      for (const Distribution& law : entry_laws())
        for (int a = 1; a < n_arguments; ++a) {
          const KeptShare share = kept_share(method, law, std::atof(arguments[a]));
          std::printf("%s\t%s\t%s\t%.3f\t%.3f\t%.3f\n", method.name.c_str(), law.name.c_str(),
                      arguments[a], share.median, share.least, share.most);
        }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "threshold_table: %s\n", error.what());
    return 1;
  }
  return 0;
}
