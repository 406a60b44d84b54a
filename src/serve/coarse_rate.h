/* The frame rate of an uploaded coarse video, which another process reads: a file by which FFmpeg
 * crashes or hangs must not end the server. */
#ifndef WEFT_SERVE_COARSE_RATE_H
#define WEFT_SERVE_COARSE_RATE_H

#include "base/status.h"

/* Sets *fps to the rate of the video in the open file `fd`; 0: the file has none. `program`: path
 * of weft. `folder`: working folder of the process. An error of class
 * WEFT_MSG_VIDEO_INPUT: the video cannot be read. */
weft_status weft_coarse_rate(const char *program, const char *folder, int fd, double *fps);

#endif
