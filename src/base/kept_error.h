#ifndef WEFT_BASE_KEPT_ERROR_H
#define WEFT_BASE_KEPT_ERROR_H

#include "base/memory.h"
#include "base/status.h"

/* Restores and frees the error of `status`, which weft_error_save copied before calls that may have
 * replaced it. Without a copy the message is lost, and the status stays. */
static inline weft_status_code weft_kept_error_return(weft_error_copy *error,
                                                      weft_status_code status)
{
    status = error ? weft_error_restore(error) : status;
    weft_free(error);
    return status;
}

#endif
