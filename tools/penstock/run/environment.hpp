// What the ranks of a run find around them: variables, and the Python of the checkout.
#pragma once

#include <string>
#include <vector>

namespace penstock::command {

// The names of this process's variables that ranks on other hosts need too; those of this host
// have them all.
std::vector<std::string> forwarded_variables();

// Where the ranks of a program may meet without MPI, as torch's process groups do: sets MASTER_ADDR
// to the first host of the file `hosts`, or to this host where it is empty, and MASTER_PORT to a
// port that is free here. What is set already stays.
void set_rendezvous_place(const std::string& hosts);

// The program that `penstock run` starts for `name`. "python" and "python3" are the one in
// PENSTOCK_PYTHON, which the package sets when it starts this command; else, where this command
// lies in the build folder of a checkout and no environment is active, those of the checkout's
// .venv. Any other name is as it is.
std::string program_to_run(const std::string& name);

}  // namespace penstock::command
