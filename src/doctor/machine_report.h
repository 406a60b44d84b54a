#ifndef WEFT_DOCTOR_MACHINE_REPORT_H
#define WEFT_DOCTOR_MACHINE_REPORT_H

#include "base/status.h"

/* Prints processor, its units for narrow types, memory, library versions, codecs and GPU driver on
 * standard output. */
void weft_doctor_machine(void);
/* Measures and prints the rates of matrix products by type, and of memory. */
weft_status weft_doctor_measure(void);

#endif
