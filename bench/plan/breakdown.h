/* Bytes and seconds of an iteration in parts: PULSE's Fig. 2, 3 and 11. */
#ifndef WEFT_BENCH_PLAN_BREAKDOWN_H
#define WEFT_BENCH_PLAN_BREAKDOWN_H

/* Each prints its table and, unless `folder` is NULL, writes a figure as SVG into the folder. */
void figure_2(const char *folder);
void figure_3(const char *folder);
void figure_11(const char *folder);

#endif
