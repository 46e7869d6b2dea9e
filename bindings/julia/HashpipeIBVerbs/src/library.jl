# SPDX-License-Identifier: MIT
# The C library: where it is, its functions, its errors.

const NAMES = (:init, :shutdown, :flow, :recv_pkts, :release_pkts, :get_pkts, :send_pkts)
const FUNCTIONS = Dict{Symbol,Ptr{Cvoid}}()

"""
Load libhashpipe_ibverbs: the one that the environment variable `HASHPIPE_IBVERBS_LIBRARY` names, or
else the one that the loader finds.
"""
function load_library()
    library = dlopen(get(ENV, "HASHPIPE_IBVERBS_LIBRARY", "libhashpipe_ibverbs"))
    for name in NAMES
        FUNCTIONS[name] = dlsym(library, Symbol(:hashpipe_ibv_, name))
    end
    return nothing
end

# The error of the call before, as an exception.
fail(what) = error("$what: $(Libc.strerror(Libc.errno()))")
