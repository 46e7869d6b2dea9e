/* SPDX-License-Identifier: MIT */
/*
 * The object behind a handle that dlopen.c gives out. It is empty: a search in its handle goes
 * through its dependencies, libsoftrdma, libibverbs, librdmacm, in the order of linking.
 */
extern const char softrdma_handle[];
const char softrdma_handle[] = "libsoftrdma, then the system's libibverbs and librdmacm";
