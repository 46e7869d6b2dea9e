# SPDX-License-Identifier: MIT
# In place of the package of that name, which the tests do without.
module PrettyPrint
export pprintln
pprintln(x) = println(x)
end
