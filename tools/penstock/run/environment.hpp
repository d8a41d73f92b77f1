// The environment of a run's ranks: variables, and the Python of the checkout.
#pragma once

#include <string>
#include <vector>

namespace penstock::command {

// The names of this process's variables that ranks on other hosts need too. Ranks on this host
// inherit all variables.
std::vector<std::string> forwarded_variables();

// Sets the place of a rendezvous without MPI, which torch's process groups use: MASTER_ADDR is the
// first host of the file `hosts`, or this host if `hosts` is empty; MASTER_PORT is a port that is
// free on this host. Variables that are set already stay.
void set_rendezvous_place(const std::string& hosts);

// The program that `penstock run` starts for `name`. For "python" and "python3" it is the Python in
// PENSTOCK_PYTHON, which the package sets when it starts this command. Otherwise, if this command
// lies in the build folder of a checkout and no environment is active, it is the Python of the
// checkout's .venv. Any other name is returned unchanged.
std::string program_to_run(const std::string& name);

}  // namespace penstock::command
