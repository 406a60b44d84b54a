/* Still images of a finished video, for servers and galleries. */
#ifndef WEFT_VIDEO_VIDEO_STILLS_H
#define WEFT_VIDEO_VIDEO_STILLS_H

#include "base/memory.h"

/* Longest side of a thumbnail and of a cell, and cells of a sprite sheet. */
enum { WEFT_THUMBNAIL_SIDE = 480, WEFT_SPRITE_SIDE = 320, WEFT_SPRITES = 16 };

/* Appends the middle frame of a video, reduced to WEFT_THUMBNAIL_SIDE: a WebP, or a JPEG if FFmpeg
 * has no encoder for WebP (weft_webp_is_available). */
weft_status weft_video_thumbnail(const char *path, weft_buf *image);
/* Appends a JPEG of up to WEFT_SPRITES frames, evenly spread from the first to the last one. Cells
 * follow one another in rows of ceil(sqrt(cells)), without gaps. */
weft_status weft_video_sprite_sheet(const char *path, weft_buf *image);
/* Writes NAME.thumbnail.webp (or .jpg) and NAME.spritesheet.jpg to the folder of the video. */
weft_status weft_video_stills_write(const char *video);

#endif
