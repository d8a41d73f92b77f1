// What the ranks of a run find around them: variables, and the Python of the checkout.
#pragma once

#include <string>
#include <vector>

namespace penstock::command {

// The names of this process's variables that ranks on other hosts need too; those of this host
// have them all.
std::vector<std::string> forwarded_variables();

// The program that `penstock run` starts for `name`. Where this command lies in the build folder of
// a checkout and no environment is active, "python" and "python3" are those of the checkout's
// .venv; else, and any other name, as it is.
std::string program_to_run(const std::string& name);

}  // namespace penstock::command
