/* State that the reader shares with the scan: stream, packets and frames. Private to video/. */
#ifndef WEFT_VIDEO_READER_INTERNAL_H
#define WEFT_VIDEO_READER_INTERNAL_H

#include "video/reader.h"

#include <libavformat/avformat.h>

#endif
