/* Writes report.html: one self-contained page about a run. */
#ifndef WEFT_REPORT_REPORT_PAGE_H
#define WEFT_REPORT_REPORT_PAGE_H

#include "base/config.h"

typedef struct weft_report_sources {
    const char *title;
    const char *const *runs; /* "name=folder": metrics.jsonl is plotted */
    int run_count;
    const char *vae_eval, *prompt_eval; /* JSON of weft eval; NULL: none */
    const char *const *images;          /* "title=file.png" */
    int image_count;
    const char *videos; /* folder of weft generate, with prompts.jsonl; NULL: none */
    /* Folder searched for <name>.mp4 with <name>.txt: real videos, same caption; NULL: none */
    const char *truth;
    const char *times; /* JSON lines {"step": "synth", "seconds": 12.3}; NULL: none */
} weft_report_sources;

weft_status weft_report_write(const weft_report_sources *sources, const char *path);

#endif
