/* SPDX-License-Identifier: MIT */
/*
 * The RDMA headers for this project's own libraries: every call in the source, and every call
 * inside the headers' inline functions and macros, is linked to libsoftrdma's prefixed name
 * (ibv_alloc_pd to softrdma_ibv_alloc_pd). So it reaches libsoftrdma whatever else the program
 * links. The source keeps the standard names.
 */
#ifndef SOFTRDMA_INTERPOSE_REDIRECT_H
#define SOFTRDMA_INTERPOSE_REDIRECT_H

#if defined(INFINIBAND_VERBS_H) || defined(RDMA_CMA_H)
#error "include redirect.h in place of the RDMA headers: it must see their functions first"
#endif
#ifndef __PRAGMA_REDEFINE_EXTNAME
#error "this compiler has no #pragma redefine_extname"
#endif

#include "names.h"

#define SOFTRDMA_PRAGMA(text)         _Pragma(#text)
#define SOFTRDMA_REDIRECT(name, node) SOFTRDMA_PRAGMA(redefine_extname name softrdma_##name)

SOFTRDMA_IBVERBS_NAMES(SOFTRDMA_REDIRECT)
SOFTRDMA_RDMACM_NAMES(SOFTRDMA_REDIRECT)

#undef SOFTRDMA_REDIRECT
#undef SOFTRDMA_PRAGMA

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#endif
