/* Orders for qsort and bsearch. */
#ifndef WEFT_BASE_COMPARE_H
#define WEFT_BASE_COMPARE_H

int weft_compare_f64(const void *a, const void *b);  /* double; no NaN */
int weft_compare_i64(const void *a, const void *b);  /* int64_t */
int weft_compare_text(const void *a, const void *b); /* char *, by bytes */

#endif
