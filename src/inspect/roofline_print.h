/* Rooflines as tables and as JSON. */
#ifndef WEFT_INSPECT_ROOFLINE_PRINT_H
#define WEFT_INSPECT_ROOFLINE_PRINT_H

#include "inspect/roofline.h"

/* Prints all programs as tables, or as one JSON object. */
weft_status weft_roofline_print(const weft_roofline_list *list, bool json);

#endif
