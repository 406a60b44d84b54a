#ifndef WEFT_DOCTOR_INT8_PRODUCT_H
#define WEFT_DOCTOR_INT8_PRODUCT_H

#include "base/status.h"

/* Best rate in GOP/s of oneDNN's products of int8 matrices with sums of int32 (1024 cubed), with
 * all threads. A multiply-add counts as 2. Runs for `seconds`, at least twice. */
weft_status weft_doctor_int8_product(double seconds, double *gops);

#endif
