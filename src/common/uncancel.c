/* SPDX-License-Identifier: MIT */
#include "uncancel.h"

__thread int uncancel_caller = PTHREAD_CANCEL_ENABLE;
