package locale

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// conventions are the rules by which a language writes numbers, dates and times. The library for these 29 languages has
// a package for each, with currencies and names that no page shows.
type conventions struct {
	tag                   string
	minus, group, decimal string
	percent               string // the pattern of a percentage, with # for the number
	date, clock           string // layouts as in package time; H is the hour from 0 to 23 without a leading zero
	am, pm                string
	pairs                 bool   // groups other than the last have two digits
	dotted                bool   // the number of a day is followed by a full stop
	months                string // the abbreviations of the twelve months, separated by spaces
}

// FmtNumber formats a number with the given number of decimals.
func (c *conventions) FmtNumber(x float64, decimals uint64) string {
	return c.number(x, decimals, c.group)
}

// FmtPercent formats a percentage with the given number of decimals.
func (c *conventions) FmtPercent(x float64, decimals uint64) string {
	group := ""
	if strings.HasPrefix(c.percent, "%") {
		group = c.group
	}
	return strings.Replace(c.percent, "#", c.number(x, decimals, group), 1)
}

func (c *conventions) number(x float64, decimals uint64, group string) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(x), 'f', int(decimals), 64), ".")
	var groups []string
	for size := 3; group != "" && len(whole) > size; {
		groups = append([]string{whole[len(whole)-size:]}, groups...)
		if whole = whole[:len(whole)-size]; c.pairs {
			size = 2
		}
	}
	text := strings.Join(append([]string{whole}, groups...), group)
	if decimals > 0 {
		text += c.decimal + fraction
	}
	if x < 0 {
		return c.minus + text
	}
	return text
}

// MonthAbbreviated returns the abbreviation of a month.
func (c *conventions) MonthAbbreviated(m time.Month) string { return strings.Fields(c.months)[m-1] }

// FmtDateMedium formats a date.
func (c *conventions) FmtDateMedium(t time.Time) string {
	before, after, named := strings.Cut(c.date, "Jan")
	if !named {
		return t.Format(c.date)
	}
	return t.Format(before) + c.MonthAbbreviated(t.Month()) + t.Format(after)
}

// FmtTimeShort formats the time of day.
func (c *conventions) FmtTimeShort(t time.Time) string {
	half := c.am
	if t.Hour() >= 12 {
		half = c.pm
	}
	return strings.NewReplacer("PM", half, "H", strconv.Itoa(t.Hour()),
		"15", t.Format("15"), "3", t.Format("3"), "04", t.Format("04")).Replace(c.clock)
}

// allConventions returns the conventions of CLDR. English comes first because the first is the default.
func allConventions() []conventions {
	return []conventions{
		{tag: "en", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "Jan 2, 2006", clock: "3:04 PM", am: "am", pm: "pm",
			months: "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"},
		{tag: "en_GB", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2 Jan 2006", clock: "15:04",
			months: "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"},
		{tag: "ar", minus: "\u061c-", group: "٬", decimal: "٫", percent: "#٪\u061c",
			date: "02\u200f/01\u200f/2006", clock: "3:04 PM", am: "ص", pm: "م",
			months: "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر"},
		{tag: "bg", minus: "-", group: "\u00a0", decimal: ",", percent: "#%",
			date: "2.01.2006 г.", clock: "H:04",
			months: "яну фев март апр май юни юли авг сеп окт ное дек"},
		{tag: "cs", minus: "-", group: "\u00a0", decimal: ",", percent: "#\u00a0%",
			date: "2. 1. 2006", clock: "H:04", dotted: true,
			months: "led úno bře dub kvě čvn čvc srp zář říj lis pro"},
		{tag: "da", minus: "-", group: ".", decimal: ",", percent: "#\u00a0%",
			date: "2. Jan 2006", clock: "15.04", dotted: true,
			months: "jan. feb. mar. apr. maj jun. jul. aug. sep. okt. nov. dec."},
		{tag: "de", minus: "-", group: ".", decimal: ",", percent: "#\u00a0%",
			date: "02.01.2006", clock: "15:04", dotted: true,
			months: "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez."},
		{tag: "de_CH", minus: "-", group: "’", decimal: ".", percent: "#%",
			date: "02.01.2006", clock: "15:04", dotted: true,
			months: "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez."},
		{tag: "el", minus: "-", group: ".", decimal: ",", percent: "#%",
			date: "2 Jan 2006", clock: "3:04 PM", am: "π.μ.", pm: "μ.μ.",
			months: "Ιαν Φεβ Μαρ Απρ Μαΐ Ιουν Ιουλ Αυγ Σεπ Οκτ Νοε Δεκ"},
		{tag: "es", minus: "-", group: ".", decimal: ",", percent: "#\u00a0%",
			date: "2 Jan 2006", clock: "H:04",
			months: "ene. feb. mar. abr. may. jun. jul. ago. sept. oct. nov. dic."},
		{tag: "fi", minus: "−", group: "\u00a0", decimal: ",", percent: "#\u00a0%",
			date: "2.1.2006", clock: "H.04", dotted: true,
			months: "tammik. helmik. maalisk. huhtik. toukok. kesäk. heinäk. elok. syysk. lokak. marrask. jouluk."},
		{tag: "fr", minus: "-", group: "\u202f", decimal: ",", percent: "#\u00a0%",
			date: "2 Jan 2006", clock: "15:04",
			months: "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc."},
		{tag: "he", minus: "\u200e-", group: ",", decimal: ".", percent: "#%",
			date: "2 בJan 2006", clock: "H:04",
			months: "ינו׳ פבר׳ מרץ אפר׳ מאי יוני יולי אוג׳ ספט׳ אוק׳ נוב׳ דצמ׳"},
		{tag: "hi", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2 Jan 2006", clock: "3:04 PM", am: "am", pm: "pm", pairs: true,
			months: "जन॰ फ़र॰ मार्च अप्रैल मई जून जुल॰ अग॰ सित॰ अक्तू॰ नव॰ दिस॰"},
		{tag: "hu", minus: "-", group: "\u00a0", decimal: ",", percent: "#%",
			date: "2006. Jan 2.", clock: "H:04",
			months: "jan. febr. márc. ápr. máj. jún. júl. aug. szept. okt. nov. dec."},
		{tag: "it", minus: "-", group: ".", decimal: ",", percent: "#%",
			date: "2 Jan 2006", clock: "15:04",
			months: "gen feb mar apr mag giu lug ago set ott nov dic"},
		{tag: "ja", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2006/01/02", clock: "H:04",
			months: "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月"},
		{tag: "ko", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2006. 1. 2.", clock: "PM 3:04", am: "AM", pm: "PM",
			months: "1월 2월 3월 4월 5월 6월 7월 8월 9월 10월 11월 12월"},
		{tag: "nb", minus: "−", group: "\u00a0", decimal: ",", percent: "#\u00a0%",
			date: "2. Jan 2006", clock: "15:04", dotted: true,
			months: "jan. feb. mar. apr. mai jun. jul. aug. sep. okt. nov. des."},
		{tag: "nl", minus: "-", group: ".", decimal: ",", percent: "#\u00a0%",
			date: "2 Jan 2006", clock: "15:04",
			months: "jan. feb. mrt. apr. mei jun. jul. aug. sep. okt. nov. dec."},
		{tag: "pl", minus: "-", group: "\u00a0", decimal: ",", percent: "#%",
			date: "2 Jan 2006", clock: "15:04",
			months: "sty lut mar kwi maj cze lip sie wrz paź lis gru"},
		{tag: "pt", minus: "-", group: ".", decimal: ",", percent: "#%",
			date: "2 de Jan de 2006", clock: "15:04",
			months: "jan. fev. mar. abr. mai. jun. jul. ago. set. out. nov. dez."},
		{tag: "ro", minus: "-", group: ".", decimal: ",", percent: "#\u00a0%",
			date: "2 Jan 2006", clock: "15:04",
			months: "ian. feb. mar. apr. mai iun. iul. aug. sept. oct. nov. dec."},
		{tag: "ru", minus: "-", group: "\u00a0", decimal: ",", percent: "#%",
			date: "2 Jan 2006 г.", clock: "15:04",
			months: "янв. февр. мар. апр. мая июн. июл. авг. сент. окт. нояб. дек."},
		{tag: "sv", minus: "−", group: "\u00a0", decimal: ",", percent: "#\u00a0%",
			date: "2 Jan 2006", clock: "15:04",
			months: "jan. feb. mars apr. maj juni juli aug. sep. okt. nov. dec."},
		{tag: "th", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2 Jan 2006", clock: "15:04",
			months: "ม.ค. ก.พ. มี.ค. เม.ย. พ.ค. มิ.ย. ก.ค. ส.ค. ก.ย. ต.ค. พ.ย. ธ.ค."},
		{tag: "tr", minus: "-", group: ".", decimal: ",", percent: "%#",
			date: "2 Jan 2006", clock: "15:04",
			months: "Oca Şub Mar Nis May Haz Tem Ağu Eyl Eki Kas Ara"},
		{tag: "uk", minus: "-", group: "\u00a0", decimal: ",", percent: "#%",
			date: "2 Jan 2006 р.", clock: "15:04",
			months: "січ. лют. бер. квіт. трав. черв. лип. серп. вер. жовт. лист. груд."},
		{tag: "zh", minus: "-", group: ",", decimal: ".", percent: "#%",
			date: "2006年Jan2日", clock: "PM3:04", am: "上午", pm: "下午",
			months: "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月"},
	}
}
