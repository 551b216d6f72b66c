package picture

import (
	"bytes"
	"encoding/binary"
)

// exifHeader precedes the data in JPEG, and by mistake in some WebP.
const exifHeader = "Exif\x00\x00"

// tagOrientation is the tag of the only entry that is kept.
const tagOrientation = 0x0112

// orientationOf returns the orientation that EXIF data name, 1 to 8, or 1 if they name none. Only the first directory
// is read, so directories that refer to each other have no effect.
func orientationOf(exif []byte) uint8 {
	exif = bytes.TrimPrefix(exif, []byte(exifHeader))
	if len(exif) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.BigEndian
	switch string(exif[:4]) {
	case "MM\x00\x2a":
	case "II\x2a\x00":
		order = binary.LittleEndian
	default:
		return 1
	}
	at := int64(order.Uint32(exif[4:]))
	if at > int64(len(exif))-2 {
		return 1
	}
	entries := exif[at+2:]
	for range order.Uint16(exif[at:]) {
		if len(entries) < 12 {
			return 1
		}
		if order.Uint16(entries) == tagOrientation {
			const short = 3
			value := order.Uint16(entries[8:])
			if order.Uint16(entries[2:]) != short || order.Uint32(entries[4:]) != 1 || value < 1 || value > 8 {
				return 1
			}
			return uint8(value)
		}
		entries = entries[12:]
	}
	return 1
}

// minimalExif returns EXIF data with the orientation alone.
func minimalExif(orientation uint8) []byte {
	return []byte{
		'M', 'M', 0, 0x2a, 0, 0, 0, 8, // the directory is at 8
		0, 1, // has one entry
		tagOrientation >> 8, tagOrientation & 0xff, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, // a short
		0, 0, 0, 0, // and no successor
	}
}
